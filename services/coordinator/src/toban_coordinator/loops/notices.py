"""Loop `notices`: what jobs notify webhooks of while nothing ends: runs that last long or are late, and jobs that do not succeed."""

from __future__ import annotations

from collections.abc import Sequence

from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.store import notices
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_store.tx import Row, autocommit, fenced_tx

TICK_SECONDS = 15.0
BATCH = 200
# A full batch: the rest follows soon.
AGAIN_SECONDS = 1.0
# Runs, and jobs, of one turn that the log names.
NAMED = 20
_log = get_logger(__name__)
silences = metrics.counter(
    "toban_job_silences_total", "Times that a job had not succeeded within its expect_success_within_seconds."
)


class Notices:
    """Each finding is written once: its row in the outbox, or in `job_silences`, is what a new leader goes on from."""

    def __init__(self, *, deps: LoopDeps) -> None:
        self._deps = deps

    async def run_once(self) -> TurnOutcome:
        """One turn."""
        async with autocommit(self._deps.pool) as t:
            runs = await notices.overdue_runs(t, limit=BATCH)
            jobs = await notices.silent_jobs(t, limit=BATCH)
            stale = await notices.any_stale(t)
        if not (runs or jobs or stale):
            return TurnOutcome()
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            added = await notices.add(t, runs) if runs else []
            noted = await notices.note_silences(t, jobs) if jobs else []
            dropped = await notices.drop_silences(t) if stale else 0
        silences.inc(len(noted))
        _report(added, noted)
        full = BATCH in (len(runs), len(jobs))
        return TurnOutcome(len(added) + len(noted) + dropped, AGAIN_SECONDS if full else None)


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
