"""Loop `notices`: what jobs notify webhooks of while nothing ends: runs that last long or are late, and jobs that do not succeed."""

from __future__ import annotations

from collections.abc import Sequence

from toban_coordinator.app.notifications.job_pages import DoPage, JobPages, ReadPage
from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.store.notifications import notices
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_store.tx import Row, autocommit, fenced_tx

TICK_SECONDS = 15.0
# When a turn leaves something: the rest follows soon.
AGAIN_SECONDS = 1.0
# Runs, and jobs, of one turn that the log names.
NAMED = 20
_log = get_logger(__name__)
silences = metrics.counter(
    "toban_job_silences_total", "Times that a job had not succeeded within its expect_success_within_seconds."
)


class Notices:
    """Each finding is written once: its row in the outbox, or in `job_silences`, is what a new leader goes on from.

    The three parts go over their jobs in pages, each by itself: one that is slow or fails keeps the others from nothing.
    """

    def __init__(self, *, deps: LoopDeps) -> None:
        self._deps = deps
        self._parts = [
            self._part("overdue_runs", notices.jobs_with_rules, self._overdue),
            self._part("silent_jobs", notices.expecting_jobs, self._silent),
            self._part("stale_silences", notices.noted_jobs, self._stale),
        ]
        # What a turn did, and whether a page had more runs than it takes.
        self._added: list[Row] = []
        self._noted: list[Row] = []
        self._dropped = 0
        self._full = False

    async def run_once(self) -> TurnOutcome:
        """One turn. Raises the error of a part after the others had their turn."""
        self._added, self._noted, self._dropped, self._full = [], [], 0, False
        finished = [await part.turn() for part in self._parts]
        silences.inc(len(self._noted))
        _report(self._added, self._noted)
        for part in self._parts:
            if part.failed is not None:
                raise part.failed
        again = self._full or not all(finished)
        return TurnOutcome(len(self._added) + len(self._noted) + self._dropped, AGAIN_SECONDS if again else None)

    def _part(self, name: str, read: ReadPage, work: DoPage) -> JobPages:
        return JobPages(name, pool=self._deps.pool, clock=self._deps.clock, read=read, work=work)

    async def _overdue(self, jobs: Sequence[int], most: int) -> None:
        # A page that is halved has fewer runs as well: many of one job can be what takes long.
        async with autocommit(self._deps.pool) as t:
            runs = await notices.overdue_runs(t, jobs, limit=most)
        if runs:
            async with fenced_tx(self._deps.pool, self._deps.term) as t:
                added = await notices.add(t, runs)
            self._added += added
        self._full |= len(runs) == most

    async def _silent(self, jobs: Sequence[int], _most: int) -> None:
        async with autocommit(self._deps.pool) as t:
            silent = await notices.silent_jobs(t, jobs)
        if silent:
            async with fenced_tx(self._deps.pool, self._deps.term) as t:
                noted = await notices.note_silences(t, silent)
            self._noted += noted

    async def _stale(self, jobs: Sequence[int], _most: int) -> None:
        async with autocommit(self._deps.pool) as t:
            stale = await notices.any_stale(t, jobs)
        if stale:
            async with fenced_tx(self._deps.pool, self._deps.term) as t:
                dropped = await notices.drop_silences(t, jobs)
            self._dropped += dropped


def _report(added: Sequence[Row], noted: Sequence[Row]) -> None:
    for one in added[:NAMED]:
        message = "a run has not started in time" if one["type"] == "job.late" else "a run lasts longer than it should"
        _log.warning(message, job=one["job"], run_id=one["run_id"], webhook=one["webhook"])
    for one in noted[:NAMED]:
        _log.warning(
            "a job has not succeeded for longer than it expects",
            job=one["name"],
            since=one["last_at"].isoformat(),
            expected_within_seconds=one["expected_within_seconds"],
        )
    if (more := max(0, len(added) - NAMED) + max(0, len(noted) - NAMED)) > 0:
        _log.warning("further jobs and runs are late; `toban webhook deliveries` lists what is sent", more=more)
