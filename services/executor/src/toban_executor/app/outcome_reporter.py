"""Reports starts and outcomes to a coordinator: all that wait in one call, repeated until each is answered."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import islice

from toban_domain.outcome import AttemptKey
from toban_executor.decide.models import Report, StartOrder
from toban_executor.ports.coordinator import Gateway
from toban_executor.ports.journal import Journal, JournalContents
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

_BATCH = 500
"""Reports of one call: about 150 KB, and one transaction at the coordinator."""
_BATCH_BYTES = 1 << 20
"""Results of jobs in one call: with them a report is up to 32 KiB larger."""
GATHER_SECONDS, QUEUED_GATHER_SECONDS = 0.02, 0.08
"""After a call with several reports the next one waits so long for enough of them: a call and its transaction cost as much as dozens of reports.
Longer while orders wait here: a slot that becomes free then starts one of these, without the leader."""
INHERITED = 1000
"""Most reports of earlier incarnations that a registration carries."""
REFUSED = "refused"

_log = get_logger(__name__)
_pending = metrics.gauge("toban_executor_reports_pending", "Outcome reports that no coordinator has acknowledged yet.")
quarantined = metrics.gauge(
    "toban_executor_quarantined",
    "Journal entries that were refused and are kept and sent again, by kind: outcome, chunk.",
    ("kind",),
)
_answers = metrics.counter("toban_executor_reports_total", "Answered outcome reports by result.", ("result",))


class OutcomeReporter:
    """Reports in order of arrival; `wake` asks for a turn of `run_once`.

    A start that was not sent yet is dropped when its outcome arrives, which implies it. An outcome that is refused is
    quarantined: kept, and sent again by `resend`, until a coordinator gives it a final answer. A call after one with several
    reports is sent at once when `enough` of them wait, and as many as there are `orders` that wait for a slot. With `hold`
    the outcome of an attempt with a kubernetes step waits, after a call of it, for `release`.
    """

    def __init__(
        self,
        *,
        gateway: Gateway,
        journal: Journal,
        wake: Callable[[], None],
        clock: Clock,
        enough: int = 1,
        orders: Callable[[], int] = lambda: 0,
    ) -> None:
        # Sends nothing meanwhile.
        self.held_back = False
        self._gateway = gateway
        self._journal = journal
        self._wake = wake
        self._enough = enough
        self._orders = orders
        self._clock = clock
        self._busy = False
        self._gather_timer: asyncio.Future[None] | None = None
        # Gets outcomes, which then wait; None: none does. Those of earlier processes are `inherited`: their steps are not known.
        self.hold: Callable[[Report], None] | None = None
        self.holds_inherited = False
        self._to_hold = set[AttemptKey]()
        self._held: dict[AttemptKey, Report] = {}
        self._waiting: dict[tuple[AttemptKey, int], Report] = {}
        self._quarantined: dict[tuple[AttemptKey, int], tuple[Report, str]] = {}

    def restore(self, contents: JournalContents) -> None:
        """Reports of an earlier process that were not answered, or refused."""
        for report in contents.reports:
            if self.holds_inherited and report.outcome is not None:
                self._hold(report)
            else:
                self._waiting[report.key, report.seq] = report
        for report, message in contents.quarantined:
            self._quarantined[report.key, report.seq] = report, message
        self.resend()

    def opened(self, order: StartOrder) -> None:
        """The attempt begins."""
        if self.hold is not None and any(step.type == "kubernetes" for step in order.steps):
            self._to_hold.add(order.key)

    def add(self, report: Report) -> None:
        """Report this as soon as the present call has ended."""
        if report.outcome is not None:
            self._waiting.pop((report.key, 1), None)
            if report.key in self._to_hold:
                self._to_hold.discard(report.key)
                self._hold(report)
                return
        self._waiting[(report.key, report.seq)] = report
        if self._gather_timer is not None and self._has_enough():
            self._gather_timer.cancel()
        self._wake()

    def _hold(self, report: Report) -> None:
        assert self.hold is not None
        self._held[report.key] = report
        self.hold(report)

    def release(self, key: AttemptKey) -> None:
        """An outcome that was held may be reported."""
        report = self._held.pop(key)
        self._waiting[(report.key, report.seq)] = report
        self._wake()

    def resend(self) -> None:
        """Report what is quarantined once more."""
        quarantined.labels("outcome").set(len(self._quarantined))
        if self._quarantined:
            self._waiting.update({place: report for place, (report, _) in self._quarantined.items()})
            self._wake()

    def first(self, most: int) -> list[Report]:
        """The `most` oldest reports that wait; fewer when their results are large."""
        reports = list(islice(self._waiting.values(), most))
        size = 0
        for place, report in enumerate(reports):
            size += len(report.outcome.result_json) if report.outcome is not None else 0
            if size > _BATCH_BYTES:
                return reports[:place]
        return reports

    @property
    def pending(self) -> int:
        """Number of reports that are not answered yet."""
        return len(self._waiting) + len(self._held)

    @property
    def unanswered(self) -> list[AttemptKey]:
        """Attempts whose outcome has no answer yet."""
        sent = [
            report.key
            for place, report in self._waiting.items()
            if report.outcome is not None and place not in self._quarantined
        ]
        return [*self._held, *sent]

    @property
    def quarantined(self) -> dict[AttemptKey, str]:
        """Attempts whose outcome was refused, each with the text of the refusal."""
        return {key: message for (key, _), (_, message) in self._quarantined.items()}

    async def run_once(self) -> int:
        """One call with what waits; returns the number of answers. Raises TobanError when no coordinator answers."""
        if self._busy and self._waiting and not self._has_enough():
            await self._gather()
        batch = self.first(_BATCH)
        self._busy = len(batch) > 1
        _pending.set(len(self._waiting))
        if not batch or self.held_back:
            return 0
        answered = await self._gateway.report(batch)
        sent = {(report.key, report.seq): report for report in batch}
        durable = []
        for result, number in Counter(answer.result for answer in answered).items():
            _answers.labels(result).inc(number)
        for answer in answered:
            report = sent.pop((answer.key, answer.seq), None)
            self._waiting.pop((answer.key, answer.seq), None)
            if answer.result == REFUSED and report is not None and report.outcome is not None:
                self._quarantine(report, answer.message)
            elif answer.seq > 1:
                self._quarantined.pop((answer.key, answer.seq), None)
                durable.append((answer.key, answer.seq))
        self._journal.drop_reports(durable)
        for place in sent:
            # PostgreSQL cannot store these now: behind the others, and not before the next tick.
            if (report := self._waiting.pop(place, None)) is not None:
                self._waiting[place] = report
        _pending.set(len(self._waiting))
        quarantined.labels("outcome").set(len(self._quarantined))
        if len(self._waiting) > len(sent):
            self._wake()
        return len(answered)

    def _has_enough(self) -> bool:
        return len(self._waiting) >= max(self._enough, self._orders())

    async def _gather(self) -> None:
        seconds = QUEUED_GATHER_SECONDS if self._orders() else GATHER_SECONDS
        self._gather_timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait([self._gather_timer])
        finally:
            self._gather_timer.cancel()
            self._gather_timer = None

    def _quarantine(self, report: Report, message: str) -> None:
        place = report.key, report.seq
        if place not in self._quarantined:
            _log.error(
                "outcome refused; kept in quarantine and sent again",
                run_id=report.key.run_id,
                token=report.key.token,
                error=message,
            )
        self._quarantined[place] = report, message
        self._journal.quarantine_report(report, message)
