"""A line of the list of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from toban_admin_web.decide.api_models import Job, RunMark, Schedule
from toban_admin_web.decide.json_fields import as_object
from toban_admin_web.decide.run_summary import RunSummary, run_summary

_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """`marks` are its last runs, the oldest first; `labels` are (key, value) by key."""

    job: Job
    marks: Sequence[RunMark]
    summary: RunSummary
    next_run_at: datetime | None
    labels: Sequence[tuple[str, str]]


def job_row(job: Job) -> JobRow:
    """Of a job of ListJobs with a history. Coordinators of an earlier release leave that out; the next run is that of the schedules then."""
    ahead = [one.next_run_at for one in job.schedules if one.next_run_at is not None]
    return JobRow(
        job=job,
        marks=job.recent_runs[::-1],
        summary=run_summary(job.recent_runs),
        next_run_at=job.next_run_at or min(ahead, default=None),
        labels=job_labels(job),
    )


def job_labels(job: Job) -> Sequence[tuple[str, str]]:
    """The labels of its definition, (key, value) by key."""
    found = as_object(job.spec).get("labels")
    return sorted((str(key), str(value)) for key, value in found.items()) if isinstance(found, dict) else []


def by_next_run(schedules: Sequence[Schedule]) -> Sequence[Schedule]:
    """Those that fire next first, those that do not fire last."""
    return sorted(schedules, key=lambda one: (one.next_run_at is None, one.next_run_at or _LATEST, one.name))
