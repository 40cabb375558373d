"""Marks runs in Redis before they are assigned, and never waits for it for long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from toban_coordinator.ports.marks import RunMarks
from toban_domain.epoch import Term
from toban_observability.logs import get_logger

# A write waits at most this long for the marks of its runs, seconds.
WAIT_SECONDS = 0.01
_log = get_logger(__name__)


class Marking:
    """The marks of one term: at most one batch is under way, so that a Redis that hangs is waited for once and not by every turn."""

    def __init__(self, *, marks: RunMarks | None, term: Term) -> None:
        self._marks = marks
        self._term = term
        self._task: asyncio.Task[frozenset[int]] | None = None

    async def by_others(self, run_ids: Sequence[int]) -> frozenset[int]:
        """Marks runs; answers those that a higher epoch has marked, none when that is not known in time."""
        if self._marks is None or not run_ids or (self._task is not None and not self._task.done()):
            return frozenset()
        self._task = asyncio.create_task(self._marks.take(run_ids, self._term.epoch), name="marks of runs")
        done, _ = await asyncio.wait({self._task}, timeout=WAIT_SECONDS)
        if not done or self._task.cancelled():
            return frozenset()
        if (error := self._task.exception()) is not None:
            _log.warning("runs could not be marked", error=str(error))
            return frozenset()
        return frozenset(run_ids) - self._task.result()

    async def close(self) -> None:
        """The term is over."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
