"""Outcomes that wait until the last lines of their attempts are on disk.

So a run that the cluster knows as ended has its whole log, whatever becomes of this process a moment later. Only a disk that
refuses or hangs for long is not waited for: an outcome that nobody hears of would keep its run going for ever.
"""

from collections.abc import Iterable

from toban_domain.outcome import AttemptKey
from toban_executor.decide.models import Report

PATIENCE_SECONDS = 3.0
"""For so long an outcome waits for a disk that refuses or hangs."""


class Conclusions:
    """Each outcome is given back once: by `stored`, `overdue` or `all`, whichever comes first."""

    def __init__(self) -> None:
        self._waiting: dict[AttemptKey, tuple[Report, float]] = {}

    def wait(self, report: Report, now: float) -> None:
        """Not all lines of its attempt are on disk at `now` (seconds of a clock that never goes back)."""
        self._waiting[report.key] = report, now

    @property
    def waiting(self) -> list[Report]:
        """Outcomes in order of arrival."""
        return [report for report, _since in self._waiting.values()]

    def stored(self, keys: Iterable[AttemptKey]) -> list[Report]:
        """These attempts have every line and their outcome on disk."""
        return [self._waiting.pop(key)[0] for key in keys if key in self._waiting]

    def overdue(self, now: float) -> list[Report]:
        """The disk has not taken them by `now`: what has waited for long enough."""
        return self.stored([key for key, (_, since) in self._waiting.items() if now - since >= PATIENCE_SECONDS])

    def all(self) -> list[Report]:
        """This process ends: nothing is waited for any more."""
        return self.stored(list(self._waiting))
