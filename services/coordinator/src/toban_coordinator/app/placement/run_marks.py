"""Marks runs in Redis while they are assigned: a hint for others, written beside the fenced write and never waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from toban_coordinator.ports.worker_registry import RunMarks
from toban_domain.epoch import Term
from toban_observability.logs import get_logger

_log = get_logger(__name__)


class RunMarker:
    """The marks of one term: at most one batch is under way, so that a Redis that hangs costs nothing but marks."""

    def __init__(self, *, marks: RunMarks | None, term: Term) -> None:
        self._marks = marks
        self._term = term
        self._task: asyncio.Task[None] | None = None

    def begin(self, run_ids: Sequence[int]) -> None:
        """Marks runs for this term's epoch. Whether they may be assigned is decided by the fence of the write, not by the marks."""
        if self._marks is None or not run_ids or (self._task is not None and not self._task.done()):
            return
        self._task = asyncio.create_task(self._take(self._marks, run_ids), name="marks of runs")

    async def _take(self, marks: RunMarks, run_ids: Sequence[int]) -> None:
        try:
            taken = await marks.take(run_ids, self._term.epoch)
        except Exception as error:
            _log.warning("cannot mark runs in Redis", error=str(error))
            return
        if len(taken) < len(run_ids):
            _log.warning("runs are marked by a higher epoch", epoch=self._term.epoch, runs=len(run_ids) - len(taken))

    async def close(self) -> None:
        """The term is over."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
