"""Loops `resume` and `limits`: deferred runs get their turn as limits get room; the leader reads which limits there are and moves breakers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from cachetools import LRUCache

from toban_coordinator.app import metrics
from toban_coordinator.app.limits.breakers import step_breakers
from toban_coordinator.app.limits.limit_gate import LimitGate
from toban_coordinator.decide.limits import limits as decide
from toban_coordinator.decide.limits.limits import Need, Usage
from toban_coordinator.decide.placement.fair import RoundRobin, Scope, Shares
from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.store.limits import limits
from toban_coordinator.store.pending_work import Agenda
from toban_coordinator.store.runs import deferred
from toban_store.tx import Tx, autocommit, fenced_tx

# How often the limits are read without a notification of a change, seconds.
LIMITS_SECONDS = 5.0
# How often expired rows are deleted for limits that are not in use, and the longest window of a start rate, seconds.
CLEAR_SECONDS = 60.0
LONGEST_WINDOW = 86_400
# Runs that one turn resumes, and limits that it looks at.
BATCH = 300
KEYS = 200
# Limits whose turns are remembered; a limit that is forgotten begins with its first scope.
KEPT_TURNS = 10_000


class Resume:
    """Reads what is deferred, limit by limit, and makes as many runs PENDING as have room. `on_resumed` starts what follows at once."""

    def __init__(self, *, deps: LoopDeps, gate: LimitGate, on_resumed: Callable[[], None]) -> None:
        self._deps = deps
        self._gate = gate
        self._on_resumed = on_resumed
        self._turns: LRUCache[str, RoundRobin] = LRUCache(KEPT_TURNS)
        # The last limit of the turn before, "" = begin again: many that have no room must not hide those behind them.
        self._after = ""

    async def run_once(self) -> TurnOutcome:
        """One turn."""
        picked: list[tuple[str, Scope, int]] = []
        async with autocommit(self._deps.pool) as t:
            keys = await deferred.keys(t, after=self._after, limit=KEYS)
            await self._gate.know(t, {decide.job_of(key) for key in keys})
            needs = {key: self._gate.table.limit_of(key) for key in keys}
            usage = await limits.usage(t, {key: need.window if need else 0 for key, need in needs.items()})
            for key in keys:
                picked += await self._pick(t, key, needs[key], usage.get(key, Usage()), BATCH - len(picked))
                if len(picked) >= BATCH:
                    break
        moved = await self._write(picked)
        more = len(keys) >= KEYS or len(picked) >= BATCH
        self._after = keys[-1] if len(keys) >= KEYS and len(picked) < BATCH else ""
        return TurnOutcome(moved, 0.0 if more and (moved or self._after) else None)

    def idle_turn(self, agenda: Agenda) -> TurnOutcome | None:
        """A turn without work; None when a run is deferred."""
        return None if agenda.deferred else TurnOutcome()

    async def _pick(self, t: Tx, key: str, need: Need | None, usage: Usage, most: int) -> list[tuple[str, Scope, int]]:
        """(limit, scope, run) of those that have room, in fair order; without a limit (`need` None) of all."""
        free = most if need is None else decide.room(need, usage)
        if free <= 0:
            return []
        turns = self._turns.setdefault(key, RoundRobin())
        largest = 2**31 - 1 if need is None else need.capacity
        found = await deferred.heads(t, key, after=turns.start, largest=largest, depth=min(free, most))
        waiting = [(head.rank, (head.scope, head.scope_id), head) for head in found]
        picked: list[tuple[str, Scope, int]] = []
        shares = await self._shares(t, key, need, {scope for _, scope, _ in waiting})
        for scope, head in turns.order(waiting, self._gate.weights()):
            if shares is not None and not shares.take(scope, head.weight):
                continue
            if len(picked) >= most or (need is not None and head.weight > free):
                # The first one that does not fit has to wait, and those behind it with it: else a large one would never start.
                break
            free -= head.weight
            picked.append((key, scope, head.id))
        return picked

    async def _shares(self, t: Tx, key: str, need: Need | None, waiting: Collection[Scope]) -> Shares | None:
        """What each waiting scope may hold; None where one waits alone, and where starts count."""
        if need is None or need.window or len(waiting) < 2:
            return None
        return Shares(need.capacity, waiting, self._gate.weights(), await deferred.held_by_scope(t, key))

    async def _write(self, picked: Sequence[tuple[str, Scope, int]]) -> int:
        if not picked:
            return 0
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            moved = await deferred.resume(t, sorted(run for _, _, run in picked))
        for key, scope, run in picked:
            if run in moved and (turns := self._turns.get(key)) is not None:
                turns.started([scope], self._gate.weights())
        metrics.resumed.inc(len(moved))
        if moved:
            self._on_resumed()
        return len(moved)


class Limits:
    """Keeps the gate's limits current, moves breakers, and clears away what counts no more."""

    def __init__(self, *, deps: LoopDeps, gate: LimitGate, on_changed: Callable[[], None]) -> None:
        self._deps = deps
        self._gate = gate
        self._on_changed = on_changed
        self._clear_at = 0.0

    async def run_once(self) -> TurnOutcome:
        """One turn."""
        async with autocommit(self._deps.pool) as t:
            changed = await self._gate.refresh(t)
        if await step_breakers(self._deps.pool, self._deps.term, self._gate.table):
            async with autocommit(self._deps.pool) as t:
                changed |= await self._gate.refresh(t)
        if changed:
            self._on_changed()
        cleared = 0
        if self._deps.clock.monotonic() >= self._clear_at:
            async with fenced_tx(self._deps.pool, self._deps.term) as t:
                cleared = await limits.clear(t, oldest_start_seconds=LONGEST_WINDOW)
            self._clear_at = self._deps.clock.monotonic() + CLEAR_SECONDS
        # A breaker that is open, and a limit that recovers, are looked at each second.
        moving = self._gate.table.factors or any(b.state != "closed" for b in self._gate.table.breakers.values())
        return TurnOutcome(int(changed) + cleared, 1.0 if moving else None)
