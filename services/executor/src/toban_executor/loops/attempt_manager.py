"""Carries out orders: from the answer on disk to the guard, and from the guard's last word to the report.

Its state is the OrderBook's; everything else here is an effect. All of it runs on the event loop's thread.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from toban_domain.epoch import term_of
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey, Outcome
from toban_domain.traceparent import parse
from toban_executor.decide.environment import job_environment
from toban_executor.decide.log_block import LogBlock
from toban_executor.decide.models import AttemptEnd, CancelOrder, Report, StartOrder
from toban_executor.decide.outcome import outcome_of
from toban_executor.decide.progress import ProgressBook
from toban_executor.loops.log_collector import Collector, count_end
from toban_executor.loops.outcome_reporter import Reporter
from toban_executor.ports import Guards, Journal
from toban_fencing.epoch_gate import Header, Record
from toban_fencing.executor_lease import HoldSide, Instant
from toban_fencing.order_book import OrderBook, StartAnswer
from toban_observability import metrics, tracing
from toban_observability.logs import get_logger
from toban_observability.tracing import Attributes, OpenSpan
from toban_runtime.clock import Clock

_log = get_logger(__name__)
_starts = metrics.counter(
    "toban_executor_starts_total", "Start orders by result: accepted, or the refusal.", ("result",)
)
_outcomes = metrics.counter(
    "toban_executor_outcomes_total", "Ended attempts by outcome and reason.", ("kind", "reason")
)
_slots = metrics.gauge("toban_executor_slots", "Number of slots: attempts that may run at the same time.")
_used = metrics.gauge("toban_executor_slots_used", "Slots in use.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """What a job's start needs beside its order: the files to execute, and the HOME of jobs."""

    program: Callable[[str], str]
    home: str


def instant(clock: Clock) -> Instant:
    """Now, on both clocks of a lease."""
    return Instant(clock.boottime(), clock.wall().timestamp())


class Attempts:
    """The attempts of this incarnation. `idle` is set while none is live; `broken` when a guard is gone for good."""

    def __init__(
        self,
        *,
        book: OrderBook[StartOrder],
        guards: Guards,
        journal: Journal,
        reporter: Reporter,
        collector: Collector,
        clock: Clock,
    ) -> None:
        self.book = book
        self.progress = ProgressBook()
        self.lease: HoldSide | None = None
        self.idle = asyncio.Event()
        self.broken = asyncio.Event()
        self.launcher = Launcher(program=lambda _name: "", home="/")
        self._guards = guards
        self._journal = journal
        self._reporter = reporter
        self._collector = collector
        self._clock = clock
        self._early: dict[AttemptKey, CancelOrder] = {}
        self._spans: dict[AttemptKey, OpenSpan] = {}
        self._starts: set[asyncio.Task[list[StartAnswer]]] = set()
        self.idle.set()
        _slots.set(book.slots)

    @property
    def lease_valid(self) -> bool:
        """True while jobs may start."""
        return self.lease is not None and self.lease.valid(instant(self._clock))

    # ---- orders

    async def start(self, header: Header, orders: Sequence[StartOrder], smallest_live: int) -> list[StartAnswer]:
        """Decide, write down and hand over, answer.

        Raises UNAVAILABLE, to be asked again, when the journal cannot be written (nothing is started that no guard has yet), or when an attempt
        that an earlier order of the same is still writing down could not be. A caller that gives up changes nothing: what was begun is finished.
        """
        work = asyncio.create_task(self._start(header, orders, smallest_live))
        self._starts.add(work)
        work.add_done_callback(self._start_done)
        return await asyncio.shield(work)

    def _start_done(self, work: "asyncio.Task[list[StartAnswer]]") -> None:
        self._starts.discard(work)
        if not work.cancelled():
            # Taken here, so that an error whose caller has gone is not reported as lost.
            work.exception()

    async def _start(self, header: Header, orders: Sequence[StartOrder], smallest_live: int) -> list[StartAnswer]:
        before = self.book.smallest_live
        answers, accepted, records = self.book.start(
            header, orders, smallest_live=smallest_live, lease_valid=self.lease_valid
        )
        self._note_live()
        await self._write_and_hand_over(accepted, records)
        if self.book.smallest_live > before:
            self._journal.forget_below(self.book.smallest_live)
        self._check_kept(records)
        for answer in answers:
            _starts.labels(answer.refusal or "accepted").inc()
        return answers

    async def _write_and_hand_over(self, accepted: Sequence[StartOrder], records: Sequence[Record]) -> None:
        """On disk and with the guards when this returns.

        Side by side while the disk takes writes and nothing but acceptances is to be written: what is told a guard dies with this incarnation,
        so no later one can take it for unstarted. A disk that refuses stops the next order; this attempt runs, and the answer says so.
        """
        ahead = self._journal.writable and all(record.kind == "seen" for record in records)
        if ahead:
            self._hand_over_all(accepted)
        try:
            await self._write(records)
        except TobanError:
            if ahead:
                return
            self._withdraw(accepted)
            raise
        if not ahead:
            self._hand_over_all(accepted)

    async def _write(self, records: Sequence[Record]) -> None:
        await self._journal.record(records)
        self.book.saved(records)

    async def learn_epoch(self, epoch: int) -> None:
        """An epoch that a coordinator named, on disk when this returns."""
        await self._write(self.book.raise_epoch(epoch))

    def _hand_over_all(self, accepted: Sequence[StartOrder]) -> None:
        for order in accepted:
            self._hand_over(order)

    def _withdraw(self, orders: Sequence[StartOrder]) -> None:
        self.book.withdraw([order.key for order in orders])
        for order in orders:
            self._early.pop(order.key, None)
        self._note_live()

    def _check_kept(self, records: Sequence[Record]) -> None:
        """Another order may have had the same records under way, and have withdrawn what they say when its write failed."""
        for record in records:
            if record.kind == "seen" and not self.book.knows(AttemptKey(record.run_id, record.token)):
                raise TobanError(ErrorCode.UNAVAILABLE, f"the start of run {record.run_id} could not be written down")

    def _hand_over(self, order: StartOrder) -> None:
        assert self.lease is not None and self.lease.deadline is not None
        self._collector.opened(order.key, order.ticket)
        order = self._traced(order)
        env = job_environment(order, incarnation=self.book.incarnation, home=self.launcher.home, now=self._clock.wall())
        self.book.running(order.key)
        self._guards.spawn(
            order,
            env=env,
            programs=[self.launcher.program(step.argv[0]) for step in order.steps],
            deadline=self.lease.deadline,
            lease_grace=self.lease.grace(order.grace_seconds),
        )
        early = self._early.pop(order.key, None)
        if early is not None:
            self._cancel_one(early)

    def _traced(self, order: StartOrder) -> StartOrder:
        """With the span of the attempt, which the job goes on below; unchanged while tracing is off."""
        names: Attributes = {
            "toban.run_id": order.key.run_id,
            "toban.token": str(order.key.token),
            "toban.attempt": order.attempt,
        }
        span = tracing.begin(f"run {order.job_name}", parent=parse(order.traceparent), attributes=names)
        if span is None:
            return order
        self._spans[order.key] = span
        return replace(order, traceparent=span.context.header)

    async def cancel(self, header: Header, orders: Sequence[CancelOrder], *, relayed: bool = False) -> list[str]:
        """Begin to end attempts; the outcome says when they have ended."""
        results, effects, records = self.book.cancel(header, orders, relayed=relayed)
        await self._write(records)
        self._check_kept(records)
        for order in effects:
            self._cancel_one(order)
        return results

    def _cancel_one(self, order: CancelOrder) -> None:
        reason = order.reason or "canceled"
        if self._guards.kill(order.key, cause="cancel", reason=reason, grace=order.grace_seconds) is None:
            # Accepted, but its start is still on the way to the disk.
            self._early[order.key] = order

    async def revoke(self, header: Header, keys: Sequence[AttemptKey], *, relayed: bool = False) -> list[str]:
        """Promise never to start attempts, unless they run or have ended already."""
        results, records = self.book.revoke(header, keys, relayed=relayed)
        await self._write(records)
        self._check_kept(records)
        return results

    async def drain(self, header: Header, on: bool) -> str:
        """Take no new work, or take it again."""
        refusal, records = self.book.admit(header)
        await self._write(records)
        if refusal:
            return refusal
        self.book.drained = on
        return "draining" if on else "accepting"

    # ---- lease

    def granted(self, sent: Instant) -> None:
        """A heartbeat sent at `sent` was granted."""
        assert self.lease is not None
        self._guards.push_deadline(self.lease.granted(sent))

    def end(self, keys: Iterable[AttemptKey], *, cause: str, reason: str, grace: float | None) -> None:
        """Begin to end attempts for a cause of this executor."""
        for key in keys:
            self._guards.kill(key, cause=cause, reason=reason, grace=grace)

    def end_all(self, *, cause: str, reason: str, grace: float | None, at_most: float = math.inf) -> float:
        """Begin to end every live attempt. The longest grace that one of them has, in seconds: 0 when there is none."""
        live = [key for key, _state in self.book.live]
        given = [self._guards.kill(key, cause=cause, reason=reason, grace=grace, at_most=at_most) for key in live]
        return max((seconds for seconds in given if seconds is not None), default=0.0)

    # ---- what the guards say

    def started(self, key: AttemptKey, pid: int, at_ns: int) -> None:
        """The attempt has been running for a moment."""
        self._reporter.add(Report(key=key, seq=1, started_ns=at_ns, pid=pid))

    def output(self, key: AttemptKey, block: LogBlock) -> None:
        """Lines of an attempt."""
        self._collector.add(key, block)
        self.progress.read(key, stream=block.stream, text=block.text, partial=block.partial, at_ns=block.at_ns)

    def ended(self, end: AttemptEnd) -> None:
        """The attempt is over: its slot is free at once, its outcome goes to a coordinator when all its lines are in the journal."""
        outcome = replace(outcome_of(end), progress=self.progress.closed(end.key))
        self._collector.closed(end.key, end.last_seq)
        count_end(end)
        self.book.finished(end.key)
        self._note_live()
        self._collector.conclude(Report(key=end.key, seq=2, outcome=outcome))
        _outcomes.labels(outcome.kind.value, outcome.reason.value).inc()
        self._tell(end.key, outcome)

    def _tell(self, key: AttemptKey, outcome: Outcome) -> None:
        trace = {}
        if (span := self._spans.pop(key, None)) is not None:
            trace = {"trace_id": span.context.trace_id}
            span.end({"toban.outcome": outcome.kind.value, "toban.reason": outcome.reason.value}, outcome.error_summary)
        if outcome.error_summary:
            known = {"run_id": key.run_id, "token": key.token, "epoch": term_of(key.token), **trace}
            _log.info("attempt ended", kind=outcome.kind, summary=outcome.error_summary, **known)

    def guards_gone(self) -> None:
        """Nothing can be said about jobs any more."""
        self.broken.set()

    def _note_live(self) -> None:
        live = self.book.slots - self.book.free_slots
        _used.set(live)
        if live:
            self.idle.clear()
        else:
            self.idle.set()
