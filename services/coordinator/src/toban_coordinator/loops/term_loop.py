"""What every leader loop shares: its dependencies, its turn's report, and the wake-up for work that is due at a known time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from toban_coordinator.app.placement.fast_path import CurrentFastPath
from toban_coordinator.ports.leader import ServerClock
from toban_coordinator.ports.orders import WorkerOrders
from toban_coordinator.ports.settings import SettingsSource
from toban_coordinator.ports.worker_registry import RunMarks
from toban_domain.epoch import Term, TokenSource
from toban_domain.errors import FencedOut
from toban_observability import tracing
from toban_runtime.clock import Clock
from toban_runtime.loop import Loop, TurnResult
from toban_store.pool import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDeps:
    """What the loops of one term work with. `quick` has tight bounds, for lone fenced statements; `on_turn` hears of each finished turn,
    `on_fired` of the newest slot that was fired. `holds()`: whether the term may still be acted on.

    Without `marks` PostgreSQL alone decides who assigns a run.
    """

    pool: Pool
    quick: Pool
    term: Term
    tokens: TokenSource
    orders: WorkerOrders
    clock: Clock
    server_time: ServerClock
    settings: SettingsSource
    fast_path: CurrentFastPath
    marks: RunMarks | None = None
    holds: Callable[[], bool] = lambda: True
    on_turn: Callable[[TurnResult], None] | None = None
    on_fired: Callable[[datetime], None] = lambda _slot: None

    def tick(self) -> float:
        """How often the loops look when nothing wakes them, seconds."""
        return self.settings.known["leader_tick_seconds"]


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """What a turn did: `moved` rows, and in how many seconds the next work is due (None = nothing new is known)."""

    moved: int = 0
    next_in: float | None = None


class TermLoop(Loop):
    """A loop of one term: it also wakes itself when the next work is due, and cleans up when the term ends.

    With `idle_turn`, a tick that nothing else woke asks that first: None means that there is work to do, anything else is the turn.
    """

    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[TurnOutcome]],
        tick_seconds: float | Callable[[], float],
        deps: LoopDeps,
        *,
        idle_turn: Callable[[], Awaitable[TurnOutcome | None]] | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(name, self._timed, tick_seconds, deps.clock, on_turn=deps.on_turn)
        self._work = run_once
        self._deps = deps
        self._idle_turn = idle_turn
        self._close = close
        # A turn in full is wanted whatever `idle_turn` says: the first one, one that was asked for, and the one after a failure.
        self._forced = True
        self._wakeup: asyncio.Task[None] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Turns until told to stop; whatever ends it, nothing of it goes on."""
        try:
            await super().run(stop)
        finally:
            self._schedule_wakeup(None)
            if self._close is not None:
                await self._close()

    def wake(self) -> None:
        """Ask for a turn, in full."""
        self._forced = True
        super().wake()

    async def _timed(self) -> TurnOutcome:
        if not self._deps.holds():
            raise FencedOut(self._deps.term.epoch)
        forced, self._forced = self._forced, False
        try:
            done = None if forced or self._idle_turn is None else await self._idle_turn()
            if done is None:
                span = tracing.begin(self.name)
                done = await self._work()
                if span is not None and done.moved:
                    span.end({"toban.moved": done.moved})
        except BaseException:
            self._forced = True
            raise
        if done.next_in is not None:
            self._schedule_wakeup(done.next_in)
        return done

    def _schedule_wakeup(self, seconds: float | None) -> None:
        if self._wakeup is not None:
            self._wakeup.cancel()
            self._wakeup = None
        if seconds is None or seconds >= self.tick_seconds:
            return
        if seconds <= 0:
            self.wake()
        else:
            self._wakeup = asyncio.create_task(self._wake_after(seconds), name=f"wakeup {self.name}")

    async def _wake_after(self, seconds: float) -> None:
        await self._deps.clock.sleep(seconds)
        self.wake()
