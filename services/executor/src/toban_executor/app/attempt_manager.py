"""Carries out orders: from the record on disk to the guard, and from the guard's last message to the report.

Decisions are the OrderBook's; the rest are effects. All of it runs on the event loop's thread.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from toban_domain.epoch import term_of
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey
from toban_executor.app.attempt_spans import AttemptSpans
from toban_executor.app.job_notes import JobNotes
from toban_executor.app.known_epochs import KnownEpochs
from toban_executor.app.lease import ExecutorLease
from toban_executor.app.log_collector import LogCollector, count_end
from toban_executor.app.outcome_reporter import OutcomeReporter
from toban_executor.app.start_queue import StartQueue
from toban_executor.decide.environment import job_environment
from toban_executor.decide.guard_types import FreezeTurn, JobNote
from toban_executor.decide.lease_end import LEASE_REASON, LeaseEndBook
from toban_executor.decide.models import AttemptEnd, CancelOrder, Report, StartOrder
from toban_executor.decide.outcome import outcome_of
from toban_executor.decide.start_queue import StartThrottle
from toban_executor.ports.guards import Guards
from toban_executor.ports.journal import Journal, JournalContents
from toban_fencing.epoch_gate import Header, Record
from toban_fencing.executor_lease import Instant
from toban_fencing.order_book import OrderBook, StartAnswer
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

_log = get_logger(__name__)
_starts = metrics.counter(
    "toban_executor_starts_total", "Start orders by result: accepted, or the refusal.", ("result",)
)
_outcomes = metrics.counter(
    "toban_executor_outcomes_total", "Ended attempts by outcome and reason.", ("kind", "reason")
)
_frozen = metrics.gauge(
    "toban_executor_frozen_jobs", "Attempts that are frozen because the executor's lease was not renewed in time."
)
_freezes = metrics.counter("toban_executor_freezes_total", "Attempts frozen at the end of the executor's lease.")
_thaws = metrics.counter("toban_executor_resumes_total", "Frozen attempts that a new grant has let go on.")
_slots = metrics.gauge("toban_executor_slots", "Number of slots: attempts that may run at the same time.")
_unreachable = metrics.gauge(
    "toban_executor_processes_unreachable",
    "1 after processes of a job have refused signals (EPERM): no new work until a restart.",
)
_used = metrics.gauge("toban_executor_slots_used", "Slots in use.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """What a job's start needs beside its order: `program` gives the file to execute for a name; `home` is the HOME of jobs."""

    program: Callable[[str], str]
    home: str


class AttemptManager:
    """The attempts of this incarnation: owns its order book, journal records, output collector and reports.

    `idle` is set while no attempt is live, and `on_live` is called when that ends; `broken` when a guard has ended without a successor.
    `freeze_max` gives the seconds that an attempt may stay frozen, `tries` how to ask about continuation; `wake_heartbeat` sends a heartbeat at
    once.
    """

    def __init__(
        self,
        *,
        book: OrderBook[StartOrder],
        guards: Guards,
        journal: Journal,
        reporter: OutcomeReporter,
        collector: LogCollector,
        launcher: Launcher,
        notes: JobNotes,
        freeze_max: Callable[[], float],
        tries: Callable[[], tuple[int, float]],
        wake_heartbeat: Callable[[], None],
        throttle: StartThrottle,
        clock: Clock,
    ) -> None:
        self.book = book
        self.epochs = KnownEpochs(book=book, journal=journal, clock=clock)
        self.lease_end = LeaseEndBook()
        self.lease = ExecutorLease(clock=clock, tries=tries)
        self.notes = notes
        self.progress = notes.progress
        self.idle = asyncio.Event()
        self.on_live: Callable[[], None] = lambda: None
        self.broken = asyncio.Event()
        self._launcher = launcher
        self._freeze_max = freeze_max
        self._wake_heartbeat = wake_heartbeat
        self._guards = guards
        self._journal = journal
        self._reporter = reporter
        self._collector = collector
        self._clock = clock
        # Cancels of attempts whose start is still on its way to the disk.
        self._early_cancels: dict[AttemptKey, CancelOrder] = {}
        self._spans = AttemptSpans()
        # Attempts that occupy a slot: given to a guard, and not ended.
        self._in_slots: set[AttemptKey] = set()
        self._throttle = throttle
        self._filling: asyncio.Task[None] | None = None
        self.waiting = StartQueue(
            start=self._spawn,
            end=self._over,
            why_not=self._why_not_now,
            slot_is_free=self._slot_is_free,
            clock=clock,
        )
        self._starts: set[asyncio.Task[list[StartAnswer]]] = set()
        self.idle.set()
        _slots.set(book.slots)

    # ---- reports

    def restore(self, contents: JournalContents) -> None:
        """Load what earlier processes left in the journal."""
        unreported = [*contents.reports, *(report for report, _ in contents.quarantined)]
        finished = {*contents.seen, *(report.key for report in unreported)}
        self.book.restore(epoch_max=contents.epoch_max, tombstones=contents.tombstones, finished=finished)
        self.epochs.restore(contents.signed_epoch)
        self._reporter.restore(contents)

    def first_reports(self, most: int) -> list[Report]:
        """The `most` oldest reports that are not answered."""
        return self._reporter.first(most)

    @property
    def reports_pending(self) -> int:
        """Number of reports that no coordinator has answered yet."""
        return self._reporter.pending

    @property
    def unanswered(self) -> list[AttemptKey]:
        """Ended attempts whose outcome is on its way to a coordinator, or to the journal first."""
        return [*self._collector.outcomes_pending, *self._reporter.unanswered]

    @property
    def quarantined(self) -> dict[AttemptKey, str]:
        """Ended attempts whose outcome was refused, each with the text of the refusal."""
        return self._reporter.quarantined

    # ---- orders

    async def start(self, header: Header, orders: Sequence[StartOrder], smallest_live: int) -> list[StartAnswer]:
        """Decide, persist, pass accepted attempts to guards; returns the answers in the order of `orders`.

        Raises UNAVAILABLE when the journal cannot be written, also when the write of an earlier order for the same attempt
        fails; the coordinator repeats the order. A caller that cancels changes nothing: the work is finished without it.
        """
        work = asyncio.create_task(self._start(header, orders, smallest_live))
        self._starts.add(work)
        work.add_done_callback(self._start_done)
        return await asyncio.shield(work)

    def _start_done(self, work: "asyncio.Task[list[StartAnswer]]") -> None:
        self._starts.discard(work)
        if not work.cancelled():
            # Retrieved here: asyncio reports an error that no caller retrieves.
            work.exception()

    async def _start(self, header: Header, orders: Sequence[StartOrder], smallest_live: int) -> list[StartAnswer]:
        before = self.book.smallest_live
        answers, accepted, records = self.book.start(
            header, orders, smallest_live=smallest_live, lease_valid=self.lease.valid
        )
        self._note_live()
        await self._write_and_spawn(accepted, records)
        if self.book.smallest_live > before:
            self._journal.forget_below(self.book.smallest_live)
        self._check_saved(records)
        for result, number in Counter(answer.refusal or "accepted" for answer in answers).items():
            _starts.labels(result).inc(number)
        return answers

    async def _write_and_spawn(self, accepted: Sequence[StartOrder], records: Sequence[Record]) -> None:
        """On disk and with the guards when this returns.

        Both at once while the disk accepts writes and all records are acceptances: an attempt ends with this incarnation, so
        no later one can take it for unstarted. After a failed write the attempt runs, and later orders wait for the disk.
        """
        ahead = self._journal.writable and all(record.kind == "seen" for record in records)
        if ahead:
            self._spawn_all(accepted)
        try:
            await self._write(records)
        except TobanError:
            if ahead:
                return
            self._withdraw(accepted)
            raise
        if not ahead:
            self._spawn_all(accepted)

    async def _write(self, records: Sequence[Record]) -> None:
        await self._journal.record(records)
        self.book.saved(records)

    def forget_below(self, smallest_live: int) -> None:
        """Drop memory of attempts below the smallest live token, here and in the journal."""
        if smallest_live > self.book.smallest_live:
            self.book.forget_below(smallest_live)
            self._journal.forget_below(smallest_live)

    def _spawn_all(self, accepted: Sequence[StartOrder]) -> None:
        for order in accepted:
            if not self.waiting.length and self._may_start():
                self._spawn(order)
            elif (early := self._early_cancels.pop(order.key, None)) is not None:
                self.waiting.end_unstarted(order, cause="cancel", reason=early.reason or "canceled")
            else:
                self.waiting.add(order)
        self._fill_slots()

    def _slot_is_free(self) -> bool:
        return len(self._in_slots) < self.book.slots

    def _may_start(self) -> bool:
        return self._slot_is_free() and not self._throttle.wait(self._clock.boottime())

    def _fill_slots(self) -> None:
        """Free slots get what waits, as many as may start now; the others when these have started."""
        while self.waiting.length and self._may_start():
            self.waiting.start_next()
        if self.waiting.length and self._slot_is_free() and self._filling is None:
            self._filling = asyncio.create_task(self._fill_later(), name="orders that wait for other starts")

    async def _fill_later(self) -> None:
        await self._clock.sleep(self._throttle.wait(self._clock.boottime()))
        self._filling = None
        self._fill_slots()

    def _withdraw(self, orders: Sequence[StartOrder]) -> None:
        self.book.withdraw([order.key for order in orders])
        for order in orders:
            self._early_cancels.pop(order.key, None)
        self._note_live()

    def _check_saved(self, records: Sequence[Record]) -> None:
        """Another order may have written the same records at the same time and withdrawn its attempts when that failed."""
        for record in records:
            if record.kind == "seen" and not self.book.knows(AttemptKey(record.run_id, record.token)):
                raise TobanError(ErrorCode.UNAVAILABLE, f"could not persist the start of run {record.run_id}")

    def _spawn(self, order: StartOrder) -> None:
        lease, launcher = self.lease, self._launcher
        assert lease.deadline is not None
        self._collector.opened(order.key, order.ticket)
        self._reporter.opened(order)
        order = self._spans.begin(order)
        env = job_environment(order, incarnation=self.book.incarnation, home=launcher.home, now=self._clock.wall())
        self.book.running(order.key)
        self._in_slots.add(order.key)
        self._throttle.started(order.key, self._clock.boottime())
        self.lease_end.opened(order.key, order.on_lease_loss)
        self._guards.spawn(
            order,
            env=env,
            programs=[launcher.program(step.argv[0]) if step.argv else "" for step in order.steps],
            deadline=lease.deadline,
            lease_grace=lease.grace(order.lease_loss_grace_seconds),
            freeze_max=self._freeze_max(),
        )
        early = self._early_cancels.pop(order.key, None)
        if early is not None:
            self._cancel_one(early)

    def _why_not_now(self, order: StartOrder) -> str:
        """What has changed since the order was accepted; empty when it may start."""
        if self.lease.over or not self.lease.valid or self.lease.superseded:
            return "lease"
        if not self.book.accepting:
            return "closed"
        return "term" if term_of(order.key.token) < self.book.epoch_max else ""

    # ---- ends that were ordered

    async def cancel(self, header: Header, orders: Sequence[CancelOrder], *, relayed: bool = False) -> list[str]:
        """Begin to end attempts; their outcomes report the end."""
        results, effects, records = self.book.cancel(header, orders, relayed=relayed)
        await self._write(records)
        self._check_saved(records)
        for order in effects:
            self._cancel_one(order)
        return results

    def _cancel_one(self, order: CancelOrder) -> None:
        if not self.waiting.cancel(order.key, order.reason) and not self._guards.cancel(order):
            # Accepted, but its start is still on its way to the disk.
            self._early_cancels[order.key] = order

    async def revoke(self, header: Header, keys: Sequence[AttemptKey], *, relayed: bool = False) -> list[str]:
        """Promise never to start attempts, unless they run or have ended already."""
        results, records = self.book.revoke(header, keys, relayed=relayed)
        for place, (key, result) in enumerate(zip(keys, results, strict=True)):
            if result == "running" and self.waiting.return_one(key, "revoked"):
                results[place] = "finished"
        await self._write(records)
        self._check_saved(records)
        return results

    # ---- lease

    def set_superseded(self, on: bool) -> None:
        """Whether another copy of this incarnation has the lease: the runs go on there, so what happens to them here is not reported."""
        self.lease.superseded = self._reporter.held_back = on

    def granted(self, sent: Instant, named: Collection[AttemptKey] = ()) -> None:
        """A heartbeat sent at `sent`, which named these attempts as frozen, was granted. What is not held must be ended first."""
        self._push_deadline(self.lease.granted(sent), thaw=named)

    def apply_freeze_max(self) -> None:
        """The limit of the time in which attempts may stay frozen has changed: guards apply it to those that are frozen, too."""
        if self.lease.deadline is not None:
            self._push_deadline(self.lease.deadline, thaw=())

    def _push_deadline(self, deadline: Instant, *, thaw: Collection[AttemptKey]) -> None:
        seconds = self.lease_end.seconds(self._clock.boottime())
        self._guards.push_deadline(deadline, thaw=thaw, frozen_seconds=seconds, freeze_max=self._freeze_max())

    def enforce_lease(self, late: float, *, doubtful: bool) -> None:
        """The lease ended `late` seconds ago, by the wall clock alone when `doubtful`: freeze and kill from here what guards have not."""
        limit = self._freeze_max()
        over = self.lease_end.over(self._clock.boottime(), limit)
        reason = f"frozen for longer than lease_freeze_max_seconds = {limit:g}; {LEASE_REASON}"
        self.end(over, cause="lease", reason=reason, grace=0.0)
        self._guards.enforce_lease(late=late, frozen=self.lease_end.frozen, over=over, doubtful=doubtful)

    def end(self, keys: Iterable[AttemptKey], *, cause: str, reason: str, grace: float | None) -> None:
        """Begin to end attempts for a cause of this executor."""
        for key in keys:
            if not self._end_waiting(key, cause):
                self._guards.kill(key, cause=cause, reason=reason, grace=grace)

    def end_all(
        self,
        *,
        cause: str,
        reason: str,
        grace: float | None,
        at_most: float = math.inf,
        but: Collection[AttemptKey] = (),
    ) -> float:
        """Begin to end every live attempt `but` some. The longest grace that one of them has, in seconds: 0 when there is none."""
        live = [key for key, _state in self.book.live if key not in but]
        given = [
            self._guards.kill(key, cause=cause, reason=reason, grace=grace, at_most=at_most)
            for key in live
            if not self._end_waiting(key, cause)
        ]
        return max((seconds for seconds in given if seconds is not None), default=0.0)

    def _end_waiting(self, key: AttemptKey, cause: str) -> bool:
        """Whether the attempt waited for a slot, and does not start any more."""
        if cause == "cancel":
            return self.waiting.cancel(key, "")
        return self.waiting.return_one(key, "revoked" if cause == "not_held" else "closed")

    # ---- reports of the guards

    def started(self, key: AttemptKey, pid: int, at_ns: int) -> None:
        """The attempt has been running for a moment."""
        self._reporter.add(Report(key=key, seq=1, started_ns=at_ns, pid=pid))

    def freeze_turned(self, turn: FreezeTurn) -> None:
        """An attempt was frozen or thawed; coordinators learn it at once."""
        now = self._clock.boottime()
        if not self.lease_end.turned(turn, now):
            return
        (_freezes if turn.frozen else _thaws).inc()
        _frozen.set(len(self.lease_end.frozen))
        known = {"run_id": turn.key.run_id, "token": turn.key.token, "epoch": term_of(turn.key.token)}
        if turn.frozen:
            _log.warning(f"job frozen: {LEASE_REASON}", **known)
        else:
            _log.info("job resumed", frozen_seconds=round(self.lease_end.seconds(now).get(turn.key, 0.0), 1), **known)
        self._wake_heartbeat()

    def noted(self, note: JobNote) -> None:
        """What a job has said on its socket, or the step that it has reached."""
        self.notes.take(note)

    def output(self, key: AttemptKey, block: LogBlock) -> None:
        """Lines of an attempt."""
        self._collector.add(key, block)
        self.progress.read(key, stream=block.stream, text=block.text, partial=block.partial, at_ns=block.at_ns)

    def unreachable(self, key: AttemptKey, processes: int) -> None:
        """No new work for the rest of this incarnation: what cannot be killed outlives its lease. The next one registers when it is gone."""
        self.book.out_of_reach = True
        _unreachable.set(1)
        _log.error(
            "processes of a job refuse signals (EPERM); this executor takes no new work until it is restarted",
            run_id=key.run_id,
            token=key.token,
            processes=processes,
            remedy="end these processes as root, then restart the executor; see the runbook TobanProcessesUnreachable",
        )

    def ended(self, end: AttemptEnd) -> None:
        """The attempt is over: its slot goes to the next one at once; its outcome is reported when all its lines are in the journal."""
        self._in_slots.discard(end.key)
        self._throttle.ended(end.key)
        self._over(end)
        self._fill_slots()

    def _over(self, end: AttemptEnd) -> None:
        outcome = outcome_of(end, progress=self.notes.closed(end.key))
        self._collector.closed(end.key, end.last_seq)
        count_end(end)
        self.book.finished(end.key)
        if self.lease_end.closed(end.key):
            _frozen.set(len(self.lease_end.frozen))
        self._note_live()
        self._collector.submit_outcome(Report(key=end.key, seq=2, outcome=outcome))
        if not outcome.never_started:
            _outcomes.labels(outcome.kind.value, outcome.reason.value).inc()
        self._spans.end(end.key, outcome)

    def supervisor_gone(self) -> None:
        """Jobs go on under their slot supervisors; nothing new starts. After the last one the process registers again, with new guards."""
        self.book.unsupervised = True
        self.waiting.return_all("closed")
        _log.error(
            "guard supervisor died; running jobs continue, no new work until they have ended and new guards are started",
            live=len(self.book.live),
        )
        self._end_unsupervised()
        self._wake_heartbeat()

    def _end_unsupervised(self) -> None:
        if self.book.unsupervised and self.idle.is_set() and not self.book.stopping:
            self.lease.end("the guard supervisor died")

    def guards_gone(self) -> None:
        """A guard has ended without a successor: the state of its job is unknown and the incarnation is over."""
        self.lease.end("the guards have ended")
        self.broken.set()

    def _note_live(self) -> None:
        live = self.book.slots - self.book.free_slots
        _used.set(live)
        if not live:
            self.idle.set()
            self._end_unsupervised()
        elif self.idle.is_set():
            self.idle.clear()
            self.on_live()
