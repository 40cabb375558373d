"""A coordinator's leadership as its main loop sees it: who leads, and the loops of its own terms. The election has a thread of its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

from toban_coordinator.leadership.election_runner import HAND_OVER_SECONDS, ElectionDeps, ElectionRunner
from toban_coordinator.leadership.term import RunningTerm, TermDeps
from toban_coordinator.leadership.term_hold import TermProgress
from toban_coordinator.ports.leader import LeaderView
from toban_coordinator.store.cluster import leader as rows
from toban_fencing import election_types as e
from toban_observability import metrics
from toban_observability.logs import get_logger

_log = get_logger(__name__)
_leads = metrics.gauge("toban_is_leader", "1 while this coordinator is the leader.")
_takeovers = metrics.counter("toban_takeovers_total", "Terms that this coordinator has won.")


class Leadership:
    """One coordinator's part in the election. `run()` until `leave()`; `view()` at any time. Made and used in the main loop."""

    def __init__(
        self, *, deps: ElectionDeps, contender: rows.Contender, term_deps: TermDeps, timings: e.Timings | None = None
    ) -> None:
        self._term_deps = term_deps
        self._thread = deps.thread
        self._runner = ElectionRunner(deps=deps, contender=contender, owner=_OnMainLoop(self), timings=timings)
        self._running: RunningTerm | None = None
        self._standby_role = "standby"
        self._yields = False
        self._changed = asyncio.Event()

    @property
    def me(self) -> rows.Contender:
        """Who this process is in the election."""
        return self._runner.me

    def set_address(self, address: str) -> None:
        """Where the others reach this process; known once its server has bound. Before `run()`."""
        self._runner.set_address(address)

    def view(self) -> LeaderView:
        """Who leads, as last read or as this process itself knows."""
        running, known = self._running, self._runner.known.view
        if running is None or not self.holds(running.epoch):
            return replace(known, role=self._standby_role)
        return replace(
            known,
            last_tick_at=running.progress.last_tick_at,
            last_fire_at=running.progress.last_fire_at or known.last_fire_at,
            role="leader",
            leading=True,
            settled=running.settled,
        )

    def holds(self, epoch: int) -> bool:
        """Whether this process may act as leader of this epoch now: asked at each use, since the main loop may have stood still."""
        return self._runner.hold.holds(epoch)

    def beat_still_seconds(self) -> float:
        """For how long the beat has not moved, as this process has seen it; 0 while it leads or has not looked."""
        return 0.0 if self._running else self._runner.beat_still_seconds

    def leaderless_seconds(self) -> float:
        """How long ago this process last saw any leader beat."""
        return self._runner.known.leaderless_seconds

    def obstacle(self) -> str:
        """What keeps this process from leading although it tries, with the remedy; "" when nothing does."""
        return self._runner.obstacle

    def set_standby_role(self, role: str) -> None:
        """What this coordinator is while it does not lead: standby or subleader."""
        self._standby_role = role

    def read_leader_row(self) -> None:
        """The leader row may have changed: read it now. A leader learns its epoch with each beat anyway."""
        if self._running is None:
            self._send(e.Tick(look=True))

    def report_leader_death(self, epoch: int) -> None:
        """The leader of this epoch is dead: its stream closed and a reconnect was refused."""
        self._send(e.DeathEvidence(epoch))

    def depose(self, epoch: int, reason: str) -> None:
        """Stop leading if `epoch` is the current term."""
        self._send(e.Deposed(epoch=epoch, reason=reason))

    def note_fire(self, slot: datetime) -> None:
        """A slot was fired in this process."""
        if self._running is not None:
            progress = self._running.progress
            progress.last_fire_at = max(progress.last_fire_at or slot, slot)

    def yield_leadership(self, on: bool) -> None:
        """True: another coordinator should lead, since this machine's clock is off and the other's is right. Stop leading, do not stand."""
        if on or self._yields:
            self._send(e.YieldLeadership(on))
        self._yields = on

    async def changed(self) -> None:
        """Wait until this process has begun or ended to lead."""
        await self._changed.wait()

    async def run(self) -> None:
        """Stand, lead, step down, until `leave()`."""
        await self._thread.run(self._runner.run())

    async def leave(self) -> None:
        """Finish the tick, resign, give the lock back, and stand no more."""
        if self._running is not None:
            await self._running.finish()
        await self._thread.run(self._runner.leave())

    def _send(self, event: e.Event) -> None:
        self._thread.post(self._runner.dispatch, event)

    # ------------------------------------------------------------ terms

    def begin_term(self, taken: rows.Taken, progress: TermProgress) -> None:
        """This process has won a term: run its loops."""
        epoch = taken.term.epoch
        _takeovers.inc()
        _leads.set(1)
        _log.info(
            "leads", epoch=epoch, worker_id=self.me.worker_id, settled=taken.settled, timeline=taken.term.timeline
        )
        # A leader is no sub-leader any more, also after its term.
        self._standby_role = "standby"
        self._running = RunningTerm(
            deps=self._term_deps, taken=taken, progress=progress, deposed=lambda reason: self.depose(epoch, reason)
        )
        self._note_change()

    def end_term(self) -> None:
        """The term is over: its loops end at once."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
        _leads.set(0)
        metrics.clear_leader_gauges()
        self._note_change()

    async def finish_term(self, epoch: int) -> None:
        """Let the turns under way of this term end, for a moment."""
        if self._running is not None and self._running.epoch == epoch:
            await self._running.finish(HAND_OVER_SECONDS)

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class _OnMainLoop:
    """The elector's `TermOwner`: passes on to the main loop, in order."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self._loop = asyncio.get_running_loop()

    def begin(self, taken: rows.Taken, progress: TermProgress) -> None:
        self._loop.call_soon_threadsafe(self._leadership.begin_term, taken, progress)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._leadership.end_term)

    async def finish(self, epoch: int) -> None:
        work = self._leadership.finish_term(epoch)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
