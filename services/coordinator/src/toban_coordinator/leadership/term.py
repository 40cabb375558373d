"""One term from its start to its end: settle the cluster, run the leader's loops, stop them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_coordinator.leadership.term_hold import TermProgress
from toban_coordinator.store.cluster import leader as rows
from toban_domain.epoch import EpochExhausted, Term, TokenSource
from toban_domain.errors import FencedOut, TobanError
from toban_fencing.executor_lease import take_seconds
from toban_observability.context import bind_log_context
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_runtime.loop import Loop, TurnResult, WakeRegistry
from toban_store.pool import Pool
from toban_store.tx import fenced_tx

# Loops that turn less often than this, and than leader_tick_seconds, say nothing about whether the leader ticks.
TICK_SECONDS = 1.0
SETTLE_POLL_SECONDS = 0.25
FINISH_SECONDS = 2.0
_log = get_logger(__name__)

OnTurn = Callable[[TurnResult], None]
MakeLoops = Callable[[Term, TokenSource, OnTurn], Sequence[Loop]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TermDeps:
    """What every term needs. `least_lease_ms()` bounds a lease while no executor has a row; `tick_seconds()` is how often the leader's
    loops look when nothing wakes them. `wakes` wakes them by name."""

    pool: Pool
    clock: Clock
    now: Callable[[], datetime]
    make_loops: MakeLoops
    least_lease_ms: Callable[[], int]
    tick_seconds: Callable[[], float]
    wakes: WakeRegistry


class RunningTerm:
    """The work of one term, in the main loop. `deposed(reason)` is called when a fence, or used-up tokens, end it from inside."""

    def __init__(
        self, *, deps: TermDeps, taken: rows.Taken, progress: TermProgress, deposed: Callable[[str], None]
    ) -> None:
        self._deps = deps
        self._term = taken.term
        self.progress = progress
        self._deposed = deposed
        self._stop = asyncio.Event()
        self._loops: Sequence[Loop] = ()
        self._turned: dict[str, datetime] = {}
        self.settled = taken.settled
        self._task = asyncio.create_task(self._run(), name=f"term {taken.term.epoch}")

    @property
    def epoch(self) -> int:
        """The epoch of this term."""
        return self._term.epoch

    def cancel(self) -> None:
        """End at once: whatever a loop is writing is fenced by now anyway."""
        self._stop.set()
        self._task.cancel()

    async def finish(self, seconds: float = FINISH_SECONDS) -> None:
        """Let each loop finish its turn, for at most `seconds`."""
        self._stop.set()
        await asyncio.wait({self._task}, timeout=seconds)

    async def _run(self) -> None:
        bind_log_context(epoch=self._term.epoch)
        try:
            if not self.settled and not await self._settle():
                return
            self.progress.last_tick_at = self._deps.now()
            self._loops = self._deps.make_loops(self._term, TokenSource(self._term), self._on_turn)
            await self._turn_loops()
        except asyncio.CancelledError:
            raise
        except FencedOut:
            self._deposed("a fence says so")
        except Exception:
            _log.exception("a term broke down", epoch=self._term.epoch)
            self._deposed("its loops broke down")

    async def _turn_loops(self) -> None:
        """Runs the loops, each registered under its name in place of that of an earlier term, until the term ends."""
        try:
            for loop in self._loops:
                self._deps.wakes.register(loop.name, loop.wake)
            async with asyncio.TaskGroup() as group:
                for loop in self._loops:
                    group.create_task(loop.run(self._stop), name=loop.name)
        finally:
            for loop in self._loops:
                self._deps.wakes.unregister(loop.name, loop.wake)

    async def _settle(self) -> bool:
        """Wait until this process has seen the cluster for a whole lease; False when told to stop meanwhile. Beats prove the cluster."""
        clock = self._deps.clock
        since = clock.boottime()
        lease_ms = max(self._deps.least_lease_ms(), await self._patiently(self._longest_lease, "the longest lease"))
        wait = take_seconds(lease_ms)
        _log.warning(
            "the cluster is not settled: nothing is dispatched or fenced", epoch=self._term.epoch, seconds=wait
        )
        while not self._stop.is_set():
            self.progress.last_tick_at = self._deps.now()
            if clock.boottime() - since >= wait and await self._mark_settled():
                _log.info("the cluster is settled", epoch=self._term.epoch, timeline=self._term.timeline)
                return True
            await clock.sleep(SETTLE_POLL_SECONDS)
        return False

    async def _longest_lease(self) -> int:
        return await rows.longest_lease_ms(self._deps.pool)

    async def _patiently(self, read: Callable[[], Awaitable[int]], what: str) -> int:
        """The answer, as soon as PostgreSQL gives one; the end of the term cancels this."""
        while True:
            try:
                return await read()
            except TobanError as error:
                _log.warning(f"cannot read {what}", error=error.message, next_try_seconds=SETTLE_POLL_SECONDS)
                await self._deps.clock.sleep(SETTLE_POLL_SECONDS)

    async def _mark_settled(self) -> bool:
        try:
            async with fenced_tx(self._deps.pool, self._term) as t:
                await rows.settle(t)
        except FencedOut:
            raise
        except TobanError as error:
            _log.warning(
                "cannot mark the cluster as settled", error=error.message, next_try_seconds=SETTLE_POLL_SECONDS
            )
            return False
        self.settled = True
        return True

    def _on_turn(self, turn: TurnResult) -> None:
        if isinstance(turn.error, FencedOut):
            self._deposed("a fence says so")
        elif isinstance(turn.error, EpochExhausted):
            self._deposed("its attempt numbers are used up")
        # A turn that failed has ended too: a loop that fails is not one that hangs.
        self._turned[turn.loop] = self._deps.now()
        self._note_tick()

    def _note_tick(self) -> None:
        """A tick is finished when the slowest of the quick loops has finished a turn."""
        slowest = max(TICK_SECONDS, self._deps.tick_seconds())
        quick = [loop.name for loop in self._loops if loop.tick_seconds <= slowest]
        if quick and all(name in self._turned for name in quick):
            self.progress.last_tick_at = min(self._turned[name] for name in quick)
