"""Reports starts and outcomes to a coordinator: all that wait in one call, repeated until each is answered."""

from collections.abc import Callable, Iterable
from itertools import islice

from toban_domain.outcome import AttemptKey
from toban_executor.decide.models import Report
from toban_executor.ports import Gateway, Journal
from toban_observability import metrics

_BATCH = 500
"""Reports of one call: about 150 KB, and one transaction at the coordinator."""
INHERITED = 1000
"""Most reports of earlier incarnations that a registration carries."""

_pending = metrics.gauge("toban_executor_reports_pending", "Outcome reports that no coordinator has acknowledged yet.")
_answers = metrics.counter("toban_executor_reports_total", "Answered outcome reports by result.", ("result",))


class OutcomeReporter:
    """Reports in order of arrival; `wake` asks for a turn of `run_once`.

    A start that was not sent yet is dropped when its outcome arrives, which implies it.
    """

    def __init__(self, *, gateway: Gateway, journal: Journal, wake: Callable[[], None]) -> None:
        self._gateway = gateway
        self._journal = journal
        self._wake = wake
        self._waiting: dict[tuple[AttemptKey, int], Report] = {}

    def restore(self, reports: Iterable[Report]) -> None:
        """Reports of an earlier process that were not answered."""
        self._waiting.update({(report.key, report.seq): report for report in reports})

    def add(self, report: Report) -> None:
        """Report this as soon as the present call has ended."""
        if report.outcome is not None:
            self._waiting.pop((report.key, 1), None)
        self._waiting[(report.key, report.seq)] = report
        self._wake()

    def first(self, most: int) -> list[Report]:
        """The `most` oldest reports that wait."""
        return list(islice(self._waiting.values(), most))

    @property
    def pending(self) -> int:
        """Number of reports that are not answered yet."""
        return len(self._waiting)

    async def run_once(self) -> int:
        """One call with what waits; returns the number of answers. Raises TobanError when no coordinator answers."""
        batch = self.first(_BATCH)
        _pending.set(len(self._waiting))
        if not batch:
            return 0
        answered = await self._gateway.report(batch)
        durable = []
        for key, seq, result in answered:
            _answers.labels(result).inc()
            self._waiting.pop((key, seq), None)
            if seq > 1:
                durable.append((key, seq))
        self._journal.drop_reports(durable)
        _pending.set(len(self._waiting))
        if self._waiting:
            self._wake()
        return len(answered)
