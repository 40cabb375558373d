"""Placing runs: what is due, who may take it, and the fenced write that gives a run its executor and token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_domain.lease import ExecutorState
from toban_domain.moves import Placement
from toban_domain.placing import DueRun, ExecutorLoad
from toban_domain.run import RunState
from toban_store import queries
from toban_store.tx import FencedTx, Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True)
class AheadRun:
    """A run of the next seconds that has no executor yet."""

    id: int
    definition_id: int
    definition_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRun:
    """A run that was sent and that no report has confirmed."""

    id: int
    token: int
    definition_id: int
    definition_version: int
    job_name: str
    slot: datetime | None
    attempt: int
    payload: str
    timeout_seconds: int
    log_day: str
    incarnation: str
    worker_id: int
    address: str


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


async def due_runs(t: Tx, now: datetime, *, limit: int) -> list[DueRun]:
    """Runs that may start at `now`, most urgent first."""
    rows = await t.fetch_all(_sql.due_runs, {"now": now, "limit": limit})
    return [DueRun(**{**row, "state": RunState(row["state"])}) for row in rows]


async def ahead_runs(t: Tx, now: datetime, until: datetime, *, limit: int) -> list[AheadRun]:
    """PENDING runs that become due after `now` and up to `until`."""
    rows = await t.fetch_all(_sql.ahead_runs, {"now": now, "until": until, "limit": limit})
    return [AheadRun(**row) for row in rows]


async def next_due(t: Tx, now: datetime) -> datetime | None:
    """When the next run becomes due after `now`; None when nothing waits for a time."""
    row = await t.fetch_one(_sql.next_due, {"now": now})
    at: datetime | None = row["at"] if row else None
    return at


async def executor_loads(t: Tx) -> list[ExecutorLoad]:
    """Every incarnation that is not off."""
    rows = await t.fetch_all(_sql.executor_loads)
    return [
        ExecutorLoad(
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
        )
        for row in rows
    ]


async def lock_executors(t: FencedTx, incarnations: Sequence[str]) -> frozenset[str]:
    """Locks those of `incarnations` that are `on`: none of them can be fenced before this transaction ends."""
    rows = await t.fetch_all(_sql.lock_executors, {"incarnations": sorted(incarnations)})
    return frozenset(row["incarnation"] for row in rows)


async def place(t: FencedTx, placements: Sequence[tuple[Placement, int]]) -> dict[int, str]:
    """PENDING or placed ahead → sent, each with the worker id of its executor. Answers run → day of its logs, for those that moved."""
    if not placements:
        return {}
    rows = await t.fetch_all(
        _sql.place,
        {
            "ids": [p.run_id for p, _ in placements],
            "tokens": [p.token for p, _ in placements],
            "incarnations": [p.incarnation for p, _ in placements],
            "workers": [worker for _, worker in placements],
            "epoch": t.term.epoch,
        },
    )
    return {row["id"]: row["log_day"] for row in rows}


async def name_executors(t: FencedTx, names: Sequence[tuple[int, str, int]]) -> set[int]:
    """PENDING → ASSIGNED ahead; `names` are (run, incarnation, worker id)."""
    if not names:
        return set()
    ids, incarnations, workers = zip(*names, strict=True)
    rows = await t.fetch_all(
        _sql.name_executors, {"ids": list(ids), "incarnations": list(incarnations), "workers": list(workers)}
    )
    return {row["id"] for row in rows}


async def unconfirmed(t: Tx, before: datetime, *, limit: int) -> list[SentRun]:
    """Runs sent before `before` that are ASSIGNED still."""
    rows = await t.fetch_all(_sql.unconfirmed, {"before": before, "limit": limit})
    return [SentRun(**_addressed(row)) for row in rows]


async def to_cancel(t: Tx, *, limit: int) -> list[CancelingRun]:
    """Sent runs in CANCEL_REQUESTED."""
    rows = await t.fetch_all(_sql.to_cancel, {"limit": limit})
    return [CancelingRun(**_addressed(row)) for row in rows]


def _addressed(row: dict[str, object]) -> dict[str, object]:
    host, port = row.pop("grpc_host"), row.pop("grpc_port")
    return {**row, "address": f"{host}:{port}"}
