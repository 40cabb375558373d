"""For management commands that Toban runs, and that run by hand as well."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from toban.job import Job, current_job

T = TypeVar("T")
TRACK_SECONDS = 1.0


class TobanCommandMixin:
    """Beside BaseCommand: `class Command(TobanCommandMixin, BaseCommand)`. Outside of a run its methods are without effect."""

    @property
    def job(self) -> Job:
        """The run that this process belongs to, with checkpoints and output."""
        return current_job()

    def progress(self, done: int, total: int, summary: str = "") -> None:
        """Report that `done` of `total` units are done. Raises JobError for numbers that cannot be."""
        self.job.progress(summary=summary, done=done, total=total)

    def cancelled(self) -> bool:
        """Whether the run is being cancelled: end soon, SIGTERM follows."""
        return self.job.cancelled()

    def track(self, items: Iterable[T], total: int | None = None, *, seconds: float = TRACK_SECONDS) -> Iterator[T]:
        """The items, with progress at most every `seconds` and after the last. Ends the command (code 143) when the run is cancelled.

        `total` is their number; without it that of `len(items)`, and without that there is a heartbeat and no progress. A query
        with `.iterator()` needs `total=query.count()`.
        """
        known = len(items) if total is None and isinstance(items, Sized) else total
        reported = float("-inf")
        done = 0
        for done, item in enumerate(items, start=1):
            if (now := time.monotonic()) - reported >= seconds:
                reported = now
                self.job.stop_if_cancelled()
                self._report(done - 1, known)
            yield item
        self._report(done, known)

    def _report(self, done: int, total: int | None) -> None:
        if total:
            # More items than were counted when the command began.
            self.progress(min(done, total), total)
        else:
            self.job.heartbeat()
