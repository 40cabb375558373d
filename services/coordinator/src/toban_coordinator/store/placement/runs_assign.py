"""Placing runs: what is due, who may take it, and the fenced write that gives a run its executor and token."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from toban_coordinator.decide.placement.search_pace import SearchPace
from toban_domain.lease import ExecutorState
from toban_domain.placement import DueRun, ExecutorLoad
from toban_domain.run import RunState
from toban_domain.transitions import Hold, Placement
from toban_store import array_literals, queries
from toban_store.tx import Fenced, FencedTx, Row, Tx

_sql = queries.load(__name__)
# Due runs of a priority that the outlook reads.
LOOK = 1000
# Due runs that `loads_and_due` looks at; its statement has this number.
MOST_LOOKED_AT = 1000
# A run that is sent, or becomes due at once, is visible so soon: the transaction that does it is much shorter.
SETTLED = timedelta(seconds=2)
# With more runs that were sent before that, each read counts all.
MOST_HELD_BEFORE = 1000
_ALWAYS = "-infinity"
# Of a read that leaves nothing to another one.
_NO_TIME = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class AheadRun:
    """A run of the next seconds that has no executor yet."""

    id: int
    definition_id: int
    definition_version: int


@dataclass(frozen=True, slots=True)
class Outlook:
    """When the next run becomes due (None = nothing waits for a time), and whether runs of the near future have no executor named yet."""

    next_due: datetime | None
    unnamed: bool
    # What finding it out took PostgreSQL, seconds.
    took: float = 0.0


class Found(NamedTuple):
    """Where a read of one rank and scope has found the first run: a read that goes on from there finds what has become due since."""

    rank: int
    scope: str
    scope_id: str
    due_from: datetime


class LoadsAndDue(NamedTuple):
    """Every incarnation that is not off, and due runs of one rank and scope; `several`: there are more of these, and no runs were read. `took`:
    PostgreSQL, seconds."""

    loads: list[ExecutorLoad]
    due: list[DueRun]
    several: bool
    took: float


class DueRuns(NamedTuple):
    """Due runs, whether the short read was enough (all have one rank and scope), and how long PostgreSQL looked for them, seconds."""

    runs: list[DueRun]
    one_scope: bool
    took: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRun:
    """A run that was sent and that no report has confirmed. `closed`: its executor takes no new work any more."""

    id: int
    token: int
    definition_id: int
    definition_version: int
    job_name: str
    slot: datetime | None
    attempt: int
    payload: str
    checkpoint: str | None
    first_step: int | None
    timeout_seconds: int
    log_day: str
    dispatched_at: datetime
    incarnation: str
    worker_id: int
    address: str
    priority: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelingRun:
    """A sent run whose cancel is not proven yet; `cancel_mode` "" = the definition's."""

    id: int
    token: int
    definition_id: int
    definition_version: int
    cancel_mode: str
    cancel_reason: str
    incarnation: str
    worker_id: int
    address: str


async def due_runs(
    t: Tx,
    now: datetime,
    *,
    limit: int,
    blocked: Collection[tuple[int, int]] = (),
    after: tuple[str, str] = ("", ""),
    one_scope: bool = False,
) -> DueRuns:
    """Runs that may start at `now`, more urgent ranks first: at least `limit` when there are so many. Of each scope the oldest, and the scopes in
    turn, beginning behind scope `after`. The (definition, version) in `blocked` are left out.

    `one_scope`: a shorter read is tried first, which is enough while all of them have one rank and scope. The answer says whether it was; their
    scopes are not read then.
    """
    parameters = {
        "now": now,
        "limit": limit,
        "due_from": _ALWAYS,
        "depth": 0,
        **_without(blocked),
        "scope": after[0],
        "scope_id": after[1],
    }
    if one_scope:
        rows = await t.fetch_all(_sql.due_runs_of_one_scope, parameters)
        several, took = rows[0]["several"], _took(rows)
        for row in rows:
            del row["several"]
        if not several:
            return DueRuns([_due_run(row) for row in rows if row["id"] is not None], True, took)
    rows = await t.fetch_all(_sql.due_runs, parameters)
    if len(rows) < limit and _shares_used_up(rows):
        # Some scopes have fewer runs than their share, and others more.
        rows = await t.fetch_all(_sql.due_runs, {**parameters, "depth": limit})
    took = _took(rows)
    for row in rows:
        del row["turn"], row["share"]
    return DueRuns([_due_run(row) for row in rows], False, took)


def _without(blocked: Collection[tuple[int, int]]) -> dict[str, str]:
    return {
        "blocked": array_literals.numbers(definition for definition, _ in blocked),
        "blocked_versions": array_literals.numbers(version for _, version in blocked),
    }


def _took(rows: Sequence[Row]) -> float:
    return max((row.pop("took") for row in rows), default=0.0)


async def due_runs_from(
    t: Tx, now: datetime, found: Found, *, limit: int, blocked: Collection[tuple[int, int]] = ()
) -> list[DueRun]:
    """Runs of the rank and scope of an earlier read that may start at `now`, with those that were placed ahead. A run that has come into the queue
    before the first one that was found there is left to the next read of all."""
    parameters = {
        "now": now,
        "limit": limit,
        **_without(blocked),
        **found._asdict(),
    }
    return [_due_run(row) for row in await t.fetch_all(_sql.due_runs_from, parameters)]


def found_first(due: Sequence[DueRun], now: datetime, before: Found | None) -> Found | None:
    """Where `due`, a read of all at `now` that had one rank and scope, has begun; None when no read has seen a queue yet."""
    due_from = min([now - SETTLED, *(run.scheduled_for for run in due)])
    for run in due:
        if run.state is RunState.PENDING:
            return Found(run.priority * 2 - run.catch_up, run.scope, run.scope_id, due_from)
    return before and before._replace(due_from=due_from)


async def due_offers(t: Tx, now: datetime, *, limit: int, blocked: Collection[tuple[int, int]] = ()) -> list[DueRun]:
    """Runs that may go on with an external step at `now`, the most urgent first. The (definition, version) in `blocked` are left out."""
    parameters = {
        "now": now,
        "limit": limit,
        **_without(blocked),
    }
    return [_due_run(row) for row in await t.fetch_all(_sql.due_offers, parameters)]


async def unsent_run(t: Tx, run_id: int) -> tuple[DueRun, int, datetime] | None:
    """A live run that was not sent, how much of its limit it waits for (0 = it does not), and PostgreSQL's time; None when it was sent or is over."""
    row = await t.fetch_one(_sql.unsent_run, {"id": run_id})
    if row is None:
        return None
    weight, now = row.pop("deferred_weight") or 0, row.pop("server_time")
    return _due_run(row), weight, now


def _due_run(row: Row) -> DueRun:
    row["state"] = RunState(row["state"])
    return DueRun(**row)


def _shares_used_up(rows: Sequence[Row]) -> bool:
    """Whether a scope has as many rows as were looked for, so that it may have more."""
    counts = Counter(row["turn"] for row in rows)
    return any(row["share"] and counts[row["turn"]] >= row["share"] for row in rows)


async def ahead_runs(t: Tx, now: datetime, until: datetime, *, limit: int) -> list[AheadRun]:
    """PENDING runs that become due after `now` and up to `until`."""
    rows = await t.fetch_all(_sql.ahead_runs, {"now": now, "until": until, "limit": limit})
    return [AheadRun(**row) for row in rows]


async def outlook(t: Tx, now: datetime, until: datetime) -> Outlook:
    """What is to come after `now`; a run that waits for its next attempt behind LOOK due ones of its priority is not seen."""
    row = await t.fetch_one(_sql.outlook, {"now": now, "until": until, "limit": LOOK})
    return Outlook(**row) if row else Outlook(None, False)


class KnownLoads:
    """What reads of loads leave to the next ones.

    Of many executors most are the same as a moment ago, and need not be decoded again. And while counting all runs takes long, a read counts what
    was sent shortly before the last read of all and since, and those older runs that it has found.
    """

    def __init__(self) -> None:
        self._by_line: dict[str, ExecutorLoad] = {}
        self._pace = SearchPace()
        # Of the last read of all, if it has noted them: runs that were sent before this time.
        self._sent_from: datetime | None = None
        self._held_before: Sequence[int] = ()
        # Of the read of all that is under way: when it began, and the same.
        self._began: datetime | None = None
        self._settled: datetime | None = None

    def asked(self, now: datetime) -> dict[str, Any]:
        """Parameters of a read at `now`."""
        self._began = self._settled = None
        if self._sent_from is not None and self._pace.waits(now.timestamp()):
            held_before = array_literals.numbers(self._held_before)
            return {"sent_from": self._sent_from, "held_before": held_before, "settled": _ALWAYS}
        self._began = now
        if self._pace.pause_seconds:
            self._settled = now - SETTLED
        settled = _ALWAYS if self._settled is None else self._settled
        return {"sent_from": _ALWAYS, "held_before": array_literals.numbers(()), "settled": settled}

    def read(self, lines: str, took: float) -> list[ExecutorLoad]:
        """One executor a line, as JSON; the statement took PostgreSQL so many seconds."""
        known, self._by_line = self._by_line, {}
        for line in lines.split("\n") if lines else ():
            self._by_line[line] = known.get(line) or _load(_with_time(json.loads(line)))
        noted = [run for line in self._by_line for run in json.loads(line)["settled"] or ()] if self._settled else ()
        self.counted(noted, took)
        return list(self._by_line.values())

    def counted(self, held_before: Iterable[int], took: float) -> None:
        """The read has answered; what it has found of runs that were sent before."""
        if self._began is not None:
            self._pace.took(self._began.timestamp(), took)
            self._held_before = list(held_before)
            self._sent_from = self._settled if len(self._held_before) <= MOST_HELD_BEFORE else None


async def executor_loads(t: Tx) -> list[ExecutorLoad]:
    """Every incarnation that is not off."""
    return await loads_again(t, _NO_TIME, KnownLoads())


async def loads_again(t: Tx, now: datetime, known: KnownLoads) -> list[ExecutorLoad]:
    """The same for a reader that comes again and again."""
    rows = await t.fetch_all(_sql.executor_loads, known.asked(now))
    known.counted((run for row in rows for run in row["settled"] or ()), _took(rows))
    return [_load(row) for row in rows]


async def loads_and_due(
    t: Tx,
    now: datetime,
    *,
    limit: int,
    beside: int,
    known: KnownLoads,
    queues: Mapping[str, int] = MappingProxyType({}),
) -> LoadsAndDue:
    """`executor_loads`, and due runs of one rank and scope: as many as there are free slots, at most `limit`, and `beside` more;
    these two are MOST_LOOKED_AT together at most.

    `queues` are orders that executors take beyond their slots, by incarnation.
    """
    parameters = {
        **known.asked(now),
        "now": now,
        "due_from": _ALWAYS,
        "beside": beside,
        "limit": limit + beside,
        "queues": json.dumps(dict(queues)),
        **_without(()),
    }
    rows = await t.fetch_all(_sql.loads_and_due, parameters)
    several, loads, took = False, "", _took(rows)
    for row in rows:
        # One of them has the loads.
        several, loads = row.pop("several"), row.pop("loads") or loads
    return LoadsAndDue(known.read(loads, took), [_due_run(row) for row in rows if row["id"] is not None], several, took)


def _with_time(item: dict[str, Any]) -> dict[str, Any]:
    # JSON has no number for a load of NaN.
    at = datetime.fromisoformat(item["last_heartbeat_at"])
    return {**item, "last_heartbeat_at": at, "load": float(item["load"])}


def _load(row: Mapping[str, Any]) -> ExecutorLoad:
    return ExecutorLoad(
        incarnation=row["incarnation"],
        worker_id=row["worker_id"],
        instance=row["instance"],
        address=f"{row['grpc_host']}:{row['grpc_port']}",
        state=ExecutorState(row["state"]),
        slots=row["slots"],
        held=row["held"],
        load=row["load"],
        labels=row["labels"],
        last_heartbeat_at=row["last_heartbeat_at"],
        drained=row["drained"],
        smallest_token=row["smallest_token"],
        group=row["executor_group"],
        job_labels=row["job_labels"],
        isolation=row["isolation"],
    )


async def place(t: Fenced, placements: Sequence[Placement], holds: Sequence[Hold] = ()) -> dict[int, str]:
    """PENDING or placed ahead → sent, with the `holds` of those that moved, in one statement with a fence of its own. Answers run → day of its
    logs, for those that moved."""
    if not placements:
        return {}
    rows = await t.fetch_fenced(
        _sql.place,
        {
            "ids": array_literals.numbers(p.run_id for p in placements),
            "tokens": array_literals.numbers(p.token for p in placements),
            "incarnations": array_literals.words(p.incarnation for p in placements),
            "next_steps": array_literals.numbers(p.next_step for p in placements),
            "executors": array_literals.words({p.incarnation for p in placements}),
            "hold_keys": [one.key for one in holds],
            "hold_ids": [one.run_id for one in holds],
            "hold_weights": [one.weight for one in holds],
        },
    )
    return {row["id"]: row["log_day"] for row in rows if row["id"] is not None}


async def name_executors(t: FencedTx, names: Sequence[tuple[int, str]]) -> set[int]:
    """PENDING → ASSIGNED ahead; `names` are (run, incarnation)."""
    if not names:
        return set()
    runs, incarnations = zip(*names, strict=True)
    parameters = {
        "ids": array_literals.numbers(runs),
        "incarnations": array_literals.words(incarnations),
        "executors": array_literals.words(set(incarnations)),
    }
    return {row["id"] for row in await t.fetch_all(_sql.name_executors, parameters)}


async def unconfirmed(t: Tx, before: datetime, *, after: int = 0, limit: int) -> list[SentRun]:
    """Runs sent before `before`, or to executors that take no work any more, that are ASSIGNED still, with ids above `after`, by id."""
    rows = await t.fetch_all(_sql.unconfirmed, {"before": before, "after": after, "limit": limit})
    return [SentRun(**_addressed(row)) for row in rows]


async def to_cancel(t: Tx, *, after: int = 0, limit: int) -> list[CancelingRun]:
    """Sent runs in CANCEL_REQUESTED with ids above `after`, by id."""
    rows = await t.fetch_all(_sql.to_cancel, {"after": after, "limit": limit})
    return [CancelingRun(**_addressed(row)) for row in rows]


def _addressed(row: Row) -> Row:
    host, port = row.pop("grpc_host"), row.pop("grpc_port")
    return {**row, "address": f"{host}:{port}"}


async def previous_results(t: Tx, run_ids: Sequence[int]) -> dict[int, Any]:
    """For each of these live runs the result of the last run of its job and scope that SUCCEEDED before; None when that set none. A run without
    such a run is left out."""
    rows = await t.fetch_all(_sql.previous_results, {"runs": list(run_ids)})
    return {row["id"]: row["result"] for row in rows}
