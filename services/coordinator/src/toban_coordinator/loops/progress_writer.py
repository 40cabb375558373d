"""Writes down what heartbeats tell about jobs: many runs a statement, beside the grants and never before them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from toban_coordinator.store.runs import progress as store
from toban_coordinator.store.runs import run_steps
from toban_coordinator.store.runs.progress import ProgressNote
from toban_coordinator.store.runs.run_steps import StepsNote
from toban_domain.outcome import AttemptKey, StepResult
from toban_domain.progress import Progress
from toban_observability import metrics
from toban_store.pool import Pool
from toban_store.tx import autocommit

TICK_SECONDS = 0.5
MAX_BATCH = 1000
MAX_WAITING = 20_000
"""Attempts whose word waits for PostgreSQL; beyond it the newest words are dropped: the next ones of these jobs come anyway."""

_written = metrics.counter(
    "toban_progress_total",
    "Progress updates of jobs by result: written, stale (the run had ended or moved), or dropped (PostgreSQL was unreachable).",
    ("result",),
)


class ProgressWriter:
    """`put` never waits and never fails; `run_once` is the body of a loop. The word of an attempt that was said last replaces an earlier one."""

    def __init__(self, *, pool: Pool) -> None:
        self._pool = pool
        self._waiting: dict[AttemptKey, ProgressNote] = {}
        self._steps: dict[AttemptKey, StepsNote] = {}

    def put(self, incarnation: str, words: Mapping[AttemptKey, Progress]) -> None:
        """Take what one heartbeat brought."""
        for key, progress in words.items():
            held = self._waiting.get(key)
            if held is None and len(self._waiting) >= MAX_WAITING:
                _written.labels("dropped").inc()
            elif held is None or held.progress.at <= progress.at:
                self._waiting[key] = ProgressNote(key, incarnation, progress)

    def put_steps(self, incarnation: str, steps: Mapping[AttemptKey, tuple[StepResult, ...]]) -> None:
        """Take the steps that attempts have started, from one heartbeat. What is dropped here comes with the outcome."""
        for key, started in steps.items():
            if key in self._steps or len(self._steps) < MAX_WAITING:
                self._steps[key] = StepsNote(key, incarnation, started)

    async def run_once(self) -> int:
        """Write what waits; how many runs changed. Raises StoreError: what was not written waits for the next turn."""
        changed = await self._write_steps() if self._steps else 0
        while self._waiting:
            batch = list(islice(self._waiting.values(), MAX_BATCH))
            async with autocommit(self._pool) as t:
                moved = len(await store.note(t, batch))
            for note in batch:
                # A newer word that came meanwhile stays.
                if self._waiting.get(note.key) is note:
                    del self._waiting[note.key]
            _written.labels("written").inc(moved)
            _written.labels("stale").inc(len(batch) - moved)
            changed += moved
        return changed

    async def _write_steps(self) -> int:
        batch = list(islice(self._steps.values(), MAX_BATCH))
        async with autocommit(self._pool) as t:
            moved = len(await run_steps.note(t, batch))
        for note in batch:
            if self._steps.get(note.key) is note:
                del self._steps[note.key]
        return moved
