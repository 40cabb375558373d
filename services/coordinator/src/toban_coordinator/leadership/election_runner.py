"""Carries out what the elector asks for: reads, compare-and-set, beats, renewals; begins and ends terms (docs/fencing.md 3.1).

It lives in a thread with connections of its own, so that a busy main loop delays no beat. Every call is bounded without being cancelled:
cancelling a statement waits for PostgreSQL to agree, which a stopped PostgreSQL never does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from toban_coordinator.leadership.election_thread import ElectionThread
from toban_coordinator.leadership.known_leader import KnownLeader
from toban_coordinator.leadership.lock_calls import LockCalls
from toban_coordinator.leadership.server_time import ServerTime
from toban_coordinator.leadership.term_hold import TermHold, TermProgress
from toban_coordinator.store.cluster import leader as rows
from toban_domain.epoch import EpochExhausted
from toban_domain.errors import TobanError
from toban_fencing import election_types as e
from toban_fencing.election_state_machine import decide, leads_until, next_due
from toban_fencing.redis_locks import LeaderLock
from toban_fencing.worker_registry import Members
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_store.pool import Pool

READ_SECONDS = 0.9
TAKE_SECONDS = 2.0
# Passes of the event loop from an answer that is there to its end in a task.
PASSES = 4
LEAVE_SECONDS = 2.0
# How long a hand-over that an operator asked for waits for the turns under way, and the main loop to say that they have ended.
HAND_OVER_SECONDS = 0.5
HAND_OVER_MARGIN_SECONDS = 0.2
LOG_EVERY_SECONDS = 5.0
# A candidate tries several times a second: what has kept it from leading counts for so long.
OBSTACLE_SECONDS = 5.0
NO_EPOCH = "no epoch is left, so no coordinator can lead: see docs/runbooks/TobanEpochNearLimit.md"
T = TypeVar("T")

_log = get_logger(__name__)
_stops = metrics.counter("toban_terms_ended_total", "Ended terms of this coordinator, by reason.", ("reason",))
_late = metrics.histogram(
    "toban_elector_lateness_seconds", "Delay of the elector's timer, due to the load of its thread or of the machine."
)
_beat_seconds = metrics.histogram("toban_leader_beat_seconds", "Commit latency of the leader's heartbeat.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionDeps:
    """What the elector's effects need: the thread, and what was opened in it: a small pool, the lock and the flags in Redis; clocks."""

    thread: ElectionThread
    pool: Pool
    lock: LeaderLock
    members: Members
    clock: Clock
    server_time: ServerTime


class TermOwner(Protocol):
    """Who runs the loops of a term. Called in the election's thread; neither call waits."""

    def begin(self, taken: rows.Taken, progress: TermProgress) -> None:
        """The term is won: run its loops, and keep `progress` up to date."""
        ...

    def end(self) -> None:
        """The term is over: stop them."""
        ...

    async def finish(self, epoch: int) -> None:
        """Let the turns under way end, for a moment."""
        ...


class _NoAnswer(Exception):
    """A call gave no answer within its bound, or failed."""


class ElectionRunner:
    """One coordinator's elector. Everything but the properties is for the election's thread."""

    def __init__(
        self, *, deps: ElectionDeps, contender: rows.Contender, owner: TermOwner, timings: e.Timings | None = None
    ) -> None:
        self._deps = deps
        self._owner = owner
        self._me = contender
        self._state = e.ElectorState(me=contender.incarnation, timings=timings or e.Timings())
        self._won: rows.Taken | None = None
        self._progress: TermProgress | None = None
        # The term whose hand-over has begun; epochs do not come again.
        self._handing_over = 0
        self.hold = TermHold(clock=deps.clock)
        self.known = KnownLeader(clock=deps.clock)
        self._lock = LockCalls(lock=deps.lock, members=deps.members, worker_id=contender.worker_id, clock=deps.clock)
        self._poked = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._logged_at = -LOG_EVERY_SECONDS
        self._obstacle = ("", -OBSTACLE_SECONDS)

    # ------------------------------------------------------------ from any thread

    @property
    def me(self) -> rows.Contender:
        """Who this process is in the election."""
        return self._me

    def set_address(self, address: str) -> None:
        """Where the others reach this process. Before `run()`."""
        self._me = replace(self._me, address=address)

    @property
    def beat_still_seconds(self) -> float:
        """For how long the beat has not moved, as this process has seen it; 0 before it has looked."""
        seen = self._state.candidate.seen
        return 0.0 if seen is None else self._deps.clock.boottime() - seen.since

    @property
    def obstacle(self) -> str:
        """What keeps this process from leading although it tries, with the remedy; "" when nothing does."""
        text, at = self._obstacle
        return text if self._deps.clock.monotonic() - at < OBSTACLE_SECONDS else ""

    # ------------------------------------------------------------ in the thread

    async def run(self) -> None:
        """Stand, lead, step down, until `leave()`."""
        clock, loop = self._deps.clock, asyncio.get_running_loop()
        ticked_at = clock.boottime()
        while self._state.role is not e.Role.LEFT:
            # Counted from the last tick, however often something else happens.
            due = max(clock.boottime(), next_due(self._state, ticked_at))
            self._poked.clear()
            timer = loop.call_later(max(0.0, due - clock.boottime()), self._poked.set)
            try:
                await self._poked.wait()
            finally:
                timer.cancel()
            now = clock.boottime()
            if now >= due:
                _late.observe(now - due)
                ticked_at = now
                self.dispatch(e.Tick())

    async def leave(self) -> None:
        """Resign, give the lock back, and stand no more."""
        self.dispatch(e.Leave())
        end = self._deps.clock.monotonic() + LEAVE_SECONDS
        # A take-over under way may still be won: its last words are tasks of their own.
        while self._tasks and (left := end - self._deps.clock.monotonic()) > 0:
            await asyncio.wait(tuple(self._tasks), timeout=left)
        await self.abort()

    async def abort(self) -> None:
        """Ends every call under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin_hand_over(self, epoch: int) -> None:
        """An operator asks this term to end. Every beat until its end says so again: one task ends it."""
        if self._state.term is not None and self._state.term.epoch == epoch != self._handing_over:
            self._handing_over = epoch
            self._spawn(self._hand_over(epoch), e.DegradeSeen(epoch))

    async def _hand_over(self, epoch: int) -> None:
        """Let the turns under way finish, then step down."""
        # A main loop that hangs must not keep the term.
        finishing = asyncio.ensure_future(self._owner.finish(epoch))
        await asyncio.wait({finishing}, timeout=HAND_OVER_SECONDS + HAND_OVER_MARGIN_SECONDS)
        finishing.cancel()
        self.dispatch(e.DegradeSeen(epoch))

    # ------------------------------------------------------------ events and effects

    def dispatch(self, event: e.Event) -> None:
        """Decide on an event and carry out what follows."""
        self._state, effects = decide(self._state, event, self._deps.clock.boottime())
        if (until := leads_until(self._state)) is not None and self._state.term is not None:
            self.hold.set(self._state.term.epoch, until)
        else:
            # Before the resignation that may follow: what acts as leader looks here.
            self.hold.end()
        last_words: list[e.Resign | e.ReleaseLock] = []
        for effect in effects:
            if isinstance(effect, e.Resign | e.ReleaseLock):
                last_words.append(effect)
            else:
                self._apply_effect(effect)
        if last_words:
            self._spawn(self._step_down(last_words), None)
        self._poked.set()

    def _apply_effect(self, effect: e.Effect) -> None:
        match effect:
            case e.StartLeading(epoch=epoch):
                self._start(epoch)
            case e.StopLeading(epoch=epoch, reason=reason):
                self._end(epoch, reason)
            case e.ReadRow():
                self._spawn(self._read_row(), e.RowRead(row=None))
            case e.TryLock():
                untried = e.LockTried(sent_at=self._deps.clock.boottime(), outcome=e.LockOutcome.UNREACHABLE)
                self._spawn(self._try_lock(), untried)
            case e.TakeOver(observed=observed):
                lost = e.TakeOverDone(sent_at=self._deps.clock.boottime(), epoch=None)
                self._spawn(self._take_over(observed), lost)
            case e.Beat(epoch=epoch):
                self._spawn(self._beat(epoch), e.BeatDone(epoch=epoch, ok=None))
            case e.Renew(epoch=epoch, overwrite=overwrite):
                sent_at = self._deps.clock.boottime()
                unrenewed = e.RenewDone(epoch=epoch, sent_at=sent_at, outcome=e.LockOutcome.UNREACHABLE)
                self._spawn(self._renew(epoch, overwrite), unrenewed)
            case e.ReportForeignLock(epoch=epoch):
                self._lock.report_foreign(epoch)
            case _:
                raise TypeError(f"no such effect: {effect}")

    def _spawn(self, work: Coroutine[Any, Any, None], otherwise: e.Event | None) -> None:
        task = asyncio.create_task(self._run_guarded(work, otherwise))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_guarded(self, work: Coroutine[Any, Any, None], otherwise: e.Event | None) -> None:
        """Every call ends with an event: without one the elector would wait for its answer for ever, and never stand again."""
        try:
            await work
        except Exception:
            if self._may_log():
                _log.exception("election step failed; treated as no response")
            if otherwise is not None:
                self.dispatch(otherwise)

    def _start(self, epoch: int) -> None:
        taken = self._won
        if taken is None or taken.term.epoch != epoch:
            raise RuntimeError(f"term {epoch} was not won here")
        self._progress = TermProgress(last_tick_at=taken.server_time)
        self.known.begin_term(epoch, self._me)
        self._owner.begin(taken, self._progress)

    def _end(self, epoch: int, reason: str) -> None:
        progress, self._progress, self._won = self._progress, None, None
        self.known.end_term(progress.last_fire_at if progress else None)
        _stops.labels(reason).inc()
        (_log.info if self._state.role is e.Role.LEFT else _log.warning)("stopped leading", epoch=epoch, reason=reason)
        self._owner.end()

    # ------------------------------------------------------------ PostgreSQL

    async def _read_row(self) -> None:
        clock, sent, read = self._deps.clock, self._deps.clock.monotonic(), self.known.begin_read()
        try:
            row = await self._bounded(rows.read_row(self._deps.pool), READ_SECONDS)
        except _NoAnswer:
            self.dispatch(e.RowRead(row=None))
            return
        self._deps.server_time.feed(row["server_time"], sent_at=sent, returned_at=clock.monotonic())
        self.known.note_row(row, read=read)
        names = ("epoch", "holder", "worker_id", "address", "node_id", "beat", "beat_age", "resigned_epoch")
        self.dispatch(e.RowRead(row=e.LeaderRow(**{name: row[name] for name in names})))

    async def _take_over(self, observed: e.LeaderRow) -> None:
        sent_at, sent = self._deps.clock.boottime(), self._deps.clock.monotonic()
        work = rows.take_over(self._deps.pool, self._me, observed=observed.epoch, beat=observed.beat)
        try:
            taken = await self._bounded(work, TAKE_SECONDS)
        except _NoAnswer:
            taken = None
        if taken is not None:
            self._won = taken
            self._deps.server_time.feed(taken.server_time, sent_at=sent, returned_at=self._deps.clock.monotonic())
        self.dispatch(e.TakeOverDone(sent_at=sent_at, epoch=taken.term.epoch if taken else None))

    async def _beat(self, epoch: int) -> None:
        clock, sent = self._deps.clock, self._deps.clock.monotonic()
        tick, fire = self._shown()
        work = rows.beat(self._deps.pool, epoch, last_tick_at=tick, last_fire_at=fire)
        try:
            beaten = await self._bounded(work, READ_SECONDS)
        except _NoAnswer:
            self.dispatch(e.BeatDone(epoch=epoch, ok=None))
            return
        _beat_seconds.observe(clock.monotonic() - sent)
        ok = False
        if beaten is not None and self._won is not None:
            self._deps.server_time.feed(beaten.server_time, sent_at=sent, returned_at=clock.monotonic())
            self.known.note_beat(beaten.beat)
            ok = beaten.is_of(self._won.term)
        self.dispatch(e.BeatDone(epoch=epoch, ok=ok))
        if ok and beaten is not None and beaten.demoted:
            self._begin_hand_over(epoch)

    def _shown(self) -> tuple[datetime | None, datetime | None]:
        """The last tick and the newest slot that this term has fired."""
        progress = self._progress
        return (None, None) if progress is None else (progress.last_tick_at, progress.last_fire_at)

    async def _step_down(self, effects: list[e.Resign | e.ReleaseLock]) -> None:
        for effect in effects:
            if isinstance(effect, e.ReleaseLock):
                await self._lock.release(effect.epoch)
                continue
            try:
                await self._bounded(rows.resign(self._deps.pool, effect.epoch), READ_SECONDS)
            except _NoAnswer:
                pass

    async def _bounded(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        task = asyncio.create_task(work)
        await asyncio.wait({task}, timeout=seconds)
        for _ in range(PASSES):
            # A process that had no turn for so long finds the answer and the end of the wait together: the answer counts.
            if not task.done():
                await asyncio.sleep(0)
        if not task.done():
            task.add_done_callback(lambda late: late.cancelled() or late.exception())
            self._complain(f"no answer within {seconds} s")
            raise _NoAnswer
        try:
            return task.result()
        except EpochExhausted as error:
            self._obstacle = (NO_EPOCH, self._deps.clock.monotonic())
            if self._may_log():
                _log.error("no epoch is left: no coordinator can lead", error=str(error), remedy=NO_EPOCH)
            raise _NoAnswer from error
        except (TobanError, LookupError) as error:
            self._complain(str(error))
            raise _NoAnswer from error

    def _complain(self, error: str) -> None:
        if self._may_log():
            _log.warning("election query failed; will retry", error=error, next_try_seconds=self._state.timings.poll)

    def _may_log(self) -> bool:
        """True at most once in LOG_EVERY_SECONDS: a failing election fails several times a second."""
        now = self._deps.clock.monotonic()
        due = now - self._logged_at >= LOG_EVERY_SECONDS
        if due:
            self._logged_at = now
        return due

    # ------------------------------------------------------------ Redis

    async def _try_lock(self) -> None:
        self.dispatch(await self._lock.try_lock())

    async def _renew(self, epoch: int, overwrite: e.Overwrite) -> None:
        done, degrade = await self._lock.renew(epoch, overwrite, last_tick=self._shown()[0])
        self.dispatch(done)
        if degrade is not None and await self._lock.clear_degrade():
            self.dispatch(e.DegradeSeen(degrade))
