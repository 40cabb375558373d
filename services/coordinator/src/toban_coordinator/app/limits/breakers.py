"""Breakers move by what runs did, operators open and close them, and programs post health signals (docs/limits.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from toban_coordinator.app import metrics
from toban_coordinator.app.limits.operations_limits import check_breaker_name
from toban_coordinator.decide.limits import breaker as decide
from toban_coordinator.decide.limits.breaker import Breaker, Ended, Signal
from toban_coordinator.decide.limits.limits import LimitTable
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.limits import breakers, limit_admin, limits
from toban_domain.epoch import Term
from toban_domain.errors import ErrorCode, TobanError
from toban_observability.logs import get_logger
from toban_store.pool import Pool
from toban_store.tx import autocommit, fenced_tx, tx

MAX_TTL_SECONDS = 86_400
_log = get_logger(__name__)


async def step_breakers(pool: Pool, term: Term, table: LimitTable) -> int:
    """Moves the breakers that failures open, that probe, and that a probe closes; answers how many moved."""
    watched = table.watched()
    if not watched:
        return 0
    async with autocommit(pool) as t:
        now = await breakers.server_time(t)
        since = {
            name: (decide.counted_since(table.breakers.get(name), spec, now), _probes(table.breakers.get(name)))
            for name, spec in watched.items()
            if name.startswith("job:")
        }
        ended = await breakers.ended(t, since) if since else {}
    steps = {
        name: (before, after)
        for name, spec in watched.items()
        if (after := decide.step(before := table.breakers.get(name), spec, ended.get(name, Ended()), now)) is not None
        and after != before
    }
    if not steps:
        return 0
    moved = 0
    async with fenced_tx(pool, term) as t:
        for name, (before, after) in steps.items():
            if await breakers.move(t, name, before, after):
                moved += 1
                metrics.breaker_moves.labels(after.state).inc()
                _log.warning("a breaker has changed its state", limit=name, state=after.state, reason=after.reason)
    return moved


def _probes(breaker: Breaker | None) -> bool:
    return breaker is not None and breaker.state == "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOperations:
    """What operators and programs do about breakers. Not a leader's write: the leader reads them again at once."""

    pool: Pool

    async def open(self, name: str, *, reason: str, actor: str) -> None:
        """Nothing starts until an operator closes it. Raises INVALID_ARGUMENT without a reason, JOB_NOT_FOUND, NOT_FOUND (pool)."""
        if not audit.clean_reason(reason):
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, f"opening the breaker of {name} needs a reason; add --reason TEXT"
            )
        await self._put(name, "open", reason=reason, actor=actor)

    async def close(self, name: str, *, reason: str, actor: str) -> None:
        """Runs start again; failures before now are not counted. Raises RESOURCE_INVALID_STATE when it is not open."""
        await self._put(name, "closed", reason=reason, actor=actor)

    async def signal(self, name: str, level: str, *, ttl_seconds: int, reason: str, actor: str) -> Signal:
        """A program says how well it is. Raises INVALID_ARGUMENT (level, time), RESOURCE_INVALID_STATE (there is no limit to reduce)."""
        if level not in decide.FACTORS:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"the signal is {level[:20]!r}; use ok, soft or hard")
        if not 1 <= ttl_seconds <= MAX_TTL_SECONDS:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"ttl_seconds is {ttl_seconds}; use 1 … {MAX_TTL_SECONDS}")
        async with tx(self.pool) as t:
            await limit_admin.lock(t, name)
            need = (await limits.table(t, {name.partition(":")[2]})).limit_of(name)
            if need is None or need.capacity == 0 or not name.startswith(("job:", "pool:")):
                message = (
                    f"{name[:60]!r} has no limit that a signal could reduce; set one: toban limit set {name[:60]} N"
                )
                raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message)
            before = await breakers.signal(t, name)
            after = decide.post(before, level, await breakers.server_time(t), ttl_seconds=ttl_seconds)
            after = replace(after, reason=audit.clean_reason(reason), updated_by=actor)
            await breakers.put_signal(t, name, after)
            if before is None or before.level != level:
                # Programs repeat their signals: only changes are of interest.
                was = {"signal": before.level} if before else None
                await audit.note(t, actor, "signal_limit", f"limit {name}", reason, before=was, after={"signal": level})
            await t.notify(limit_admin.WAKE)
        return after

    async def _put(self, name: str, state: str, *, reason: str, actor: str) -> None:
        async with tx(self.pool) as t:
            await limit_admin.lock(t, name)
            await check_breaker_name(t, name)
            before = await breakers.one(t, name)
            if state == "closed" and (before is None or before.state == "closed"):
                hint = f"its limit is what stops it; see toban limit get {name[:60]}"
                raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, f"the breaker of {name[:60]} is not open; {hint}")
            now = await breakers.server_time(t)
            after = Breaker(
                state=state, since=now, by_hand=state == "open", reason=audit.clean_reason(reason), updated_by=actor
            )
            await breakers.move(t, name, before, after)
            action = "open_breaker" if state == "open" else "close_breaker"
            was = {"breaker": before.state if before else "closed"}
            await audit.note(t, actor, action, f"limit {name}", reason, before=was, after={"breaker": state})
            await t.notify(limit_admin.WAKE)
