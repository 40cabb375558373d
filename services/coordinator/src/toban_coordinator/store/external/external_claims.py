"""Steps of external workers (docs/external-workers.md): the leader offers them and ends locks that stand still; any coordinator claims, extends
and ends claims, by (run, token, worker)."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple

from toban_coordinator.decide.external.claims import OfferedStep, SeenClaim
from toban_coordinator.store.runs.runs import Waiting
from toban_domain.log_limits import Used
from toban_domain.outcome import AttemptKey
from toban_domain.run import RunState
from toban_domain.transitions import LiveRun, Offer
from toban_store import array_literals, queries
from toban_store.tx import FencedTx, Row, Tx

_sql = queries.load(__name__)


class Claim(NamedTuple):
    """One step for one worker. `timeout_seconds` 0 = none."""

    key: AttemptKey
    worker: str
    ttl_ms: int
    timeout_seconds: int
    step: int


class ClaimName(NamedTuple):
    """A claim, as its worker names it."""

    key: AttemptKey
    worker: str


class Extended(NamedTuple):
    """The answer to a heartbeat of a claim that is its worker's."""

    extended: bool
    canceled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldClaim:
    """A claim, and what its end must know of the run."""

    id: int
    token: int
    worker: str
    definition_id: int
    definition_version: int
    step: int
    next_step: int | None
    claimed_at: datetime
    log_day: date
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOfClaim:
    """What new lines of a claim depend on: its stored `step`, and PostgreSQL's time in seconds since 1970."""

    definition_id: int
    definition_version: int
    payload: str
    log_day: date
    step: Any
    now: float
    canceled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StillClaim:
    """A claim that was not extended since it was seen, locked. `timed_out`: the timeout of its step has passed too."""

    run: LiveRun
    timed_out: bool
    claimed_at: datetime
    last_seq: int


async def offer(t: FencedTx, offers: Sequence[Offer]) -> set[int]:
    """PENDING → WAITING_WORKER; the runs that moved."""
    if not offers:
        return set()
    parameters = {
        "ids": array_literals.numbers(o.run_id for o in offers),
        "tokens": array_literals.numbers(o.token for o in offers),
        "types": array_literals.words(o.worker_type for o in offers),
        "next_steps": array_literals.numbers(o.next_step for o in offers),
        "phases": array_literals.words(o.phase for o in offers),
        "epoch": t.term.epoch,
    }
    return {row["id"] for row in await t.fetch_all(_sql.offer, parameters)}


async def offered(t: Tx, worker_type: str, *, limit: int, after: tuple[str, str]) -> list[OfferedStep]:
    """Offers to workers of one type, the most urgent first, scopes in turn beginning behind scope `after`; of several scopes more than `limit`."""
    parameters = {"type": worker_type, "limit": limit, "scope": after[0], "scope_id": after[1]}
    return [OfferedStep(**row) for row in await t.fetch_all(_sql.offered, parameters)]


async def claim(t: Tx, claims: Sequence[Claim]) -> set[int]:
    """Offered → claimed; the runs of the claims that were made."""
    parameters = {
        "ids": array_literals.numbers(c.key.run_id for c in claims),
        "tokens": array_literals.numbers(c.key.token for c in claims),
        "workers": array_literals.words(c.worker for c in claims),
        "ttls": array_literals.numbers(c.ttl_ms for c in claims),
        "timeouts": array_literals.numbers(c.timeout_seconds for c in claims),
        "steps": array_literals.numbers(c.step for c in claims),
    }
    return {row["id"] for row in await t.fetch_all(_sql.claim, parameters)}


async def extend(t: Tx, names: Sequence[ClaimName]) -> dict[ClaimName, Extended]:
    """Extends claims; one that is not its worker's any more is left out."""
    parameters = {
        "ids": array_literals.numbers(n.key.run_id for n in names),
        "tokens": array_literals.numbers(n.key.token for n in names),
        "workers": array_literals.words(n.worker for n in names),
    }
    return {
        ClaimName(AttemptKey(row["id"], row["token"]), row["worker"]): Extended(row["extended"], row["canceled"])
        for row in await t.fetch_all(_sql.extend, parameters)
    }


async def note_progress(t: Tx, name: ClaimName, *, percentage: int | None, summary: str) -> bool | None:
    """Whether the claim is cancelled; None when it is not the worker's any more. `percentage` None = as before."""
    row = await t.fetch_one(_sql.progress, {**_parameters(name), "percentage": percentage, "summary": summary})
    return None if row is None else bool(row["canceled"])


async def log_of(t: Tx, name: ClaimName) -> LogOfClaim | None:
    """None when the claim is not the worker's any more."""
    row = await t.fetch_one(_sql.log_of, _parameters(name))
    return None if row is None else LogOfClaim(**row)


async def note_log(t: Tx, name: ClaimName, *, before: int, last_seq: int, used: Used) -> bool:
    """The lines after number `before` up to `last_seq` are stored; False when the claim is lost, or another call was faster."""
    given = {"before": before, "last_seq": last_seq, "used": json.dumps(used)}
    return await t.execute(_sql.note_log, {**_parameters(name), **given}) == 1


async def held(t: Tx, runs: Collection[int]) -> dict[ClaimName, HeldClaim]:
    """The claims of live runs."""
    rows = [HeldClaim(**row) for row in await t.fetch_all(_sql.held, {"ids": array_literals.numbers(runs)})]
    return {ClaimName(AttemptKey(row.id, row.token), row.worker): row for row in rows}


async def claims(t: Tx) -> list[SeenClaim]:
    """Every claim there is."""
    return [SeenClaim(**row) for row in await t.fetch_all(_sql.claims)]


async def lock_still(t: FencedTx, seen: Sequence[SeenClaim]) -> list[StillClaim]:
    """Those of `seen` whose counter has not moved, locked."""
    parameters = {
        "ids": array_literals.numbers(c.run_id for c in seen),
        "tokens": array_literals.numbers(c.token for c in seen),
        "seqs": array_literals.numbers(c.lock_seq for c in seen),
    }
    return [
        StillClaim(
            timed_out=row.pop("timed_out"),
            claimed_at=row.pop("claimed_at"),
            last_seq=row.pop("last_seq"),
            run=_live_run(row),
        )
        for row in await t.fetch_all(_sql.lock_still, parameters)
    ]


async def note_cancel_timeouts(t: FencedTx, runs: Sequence[int]) -> None:
    """Event `cancel_timeout` of runs whose worker did not acknowledge their cancel."""
    if runs:
        await t.execute(_sql.note_cancel_timeouts, {"ids": array_literals.numbers(runs)})


async def unclaimed(t: Tx) -> list[Waiting]:
    """Offers of runs that have never started, by definition."""
    return [Waiting(**row) for row in await t.fetch_all(_sql.unclaimed)]


async def unclaimed_since(t: Tx, waiting: Waiting, before: datetime, *, limit: int) -> list[int]:
    """Those of one definition whose time was before `before`."""
    parameters = {
        "definition_id": waiting.definition_id,
        "version": waiting.version,
        "before": before,
        "limit": limit,
    }
    return [row["id"] for row in await t.fetch_all(_sql.unclaimed_since, parameters)]


async def lock_unclaimed(t: Tx, runs: Collection[int]) -> list[LiveRun]:
    """Those of `runs` that are offered and not claimed, locked."""
    rows = await t.fetch_all(_sql.lock_unclaimed, {"ids": array_literals.numbers(runs)})
    return [_live_run(row) for row in rows]


async def of_other_types(t: Tx, keys: Sequence[AttemptKey], worker_type: str) -> list[int]:
    """Runs whose offer or claim with one of these tokens is for workers of another type."""
    parameters = {
        "ids": array_literals.numbers(key.run_id for key in keys),
        "tokens": array_literals.numbers(key.token for key in keys),
        "only": worker_type,
    }
    return [row["id"] for row in await t.fetch_all(_sql.of_other_types, parameters)]


async def of_run(t: Tx, run_id: int) -> Row | None:
    """The offer or claim of a live run, for people; None when it has none."""
    return await t.fetch_one(_sql.of_run, {"id": run_id})


async def counts(t: Tx) -> list[Row]:
    """Offers and claims by worker type, the types with most of them first."""
    return await t.fetch_all(_sql.counts)


def _parameters(name: ClaimName) -> dict[str, object]:
    return {"id": name.key.run_id, "token": name.key.token, "worker": name.worker}


def _live_run(row: Row) -> LiveRun:
    return LiveRun(**{**row, "state": RunState(row["state"])})
