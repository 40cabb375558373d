"""Jobs, and one job with its schedules, runs and definition."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from flask import Blueprint, Response, request

from toban_admin_web.decide.api_models import (
    Job,
    JobDays,
    JobPage,
    JobVersion,
    JobVersionPage,
    NextSlot,
    NextSlots,
    RunPage,
    Schedule,
    Trigger,
    TriggerPage,
)
from toban_admin_web.decide.day_map import DAYS, DayMap, day_map
from toban_admin_web.decide.definition_text import stored_text
from toban_admin_web.decide.duration_chart import duration_chart
from toban_admin_web.decide.job_filters import parse_job_filter
from toban_admin_web.decide.job_rows import by_next_run, job_labels, job_row
from toban_admin_web.decide.json_fields import indent
from toban_admin_web.decide.spec_diff import spec_diff
from toban_admin_web.views.view_context import context, if_implemented, page, read
from toban_domain.errors import ErrorCode, TobanError

# On one page.
ITEMS = 50
LAST_RUNS = 40
# Next slots of all its schedules together.
COMING = 10
# Of its schedules; the others are in a fold.
SCHEDULES = 5
TRIGGERS = 100
MAX_DIGITS = 18
LATEST = datetime.max.replace(tzinfo=UTC)
TICK = timedelta(microseconds=1)

views = Blueprint("jobs", __name__)


@views.get("/jobs")
def listed() -> Response:
    """Jobs as a grid: a line each."""
    filters = parse_job_filter(request.args)
    found = read("JobReader.ListJobs", JobPage, **filters.fields(ITEMS))
    return page("jobs", rows=[job_row(job) for job in found.jobs], next_cursor=found.next_cursor, filters=filters)


@views.get("/jobs/<name>")
def show(name: str) -> Response:
    """One job."""
    job = read("JobReader.GetJob", Job, name=name)
    runs = read("JobReader.ListRuns", RunPage, brief=True, job=name, page={"limit": LAST_RUNS}).runs
    days = _days(name)
    return page(
        "job",
        job=job,
        labels=job_labels(job),
        runs=runs,
        chart=duration_chart(runs, context().clock.wall()),
        schedules=by_next_run(job.schedules),
        shown=SCHEDULES,
        coming=_coming(job),
        triggers=_triggers(name),
        definition=stored_text("Job", job.spec),
        days=days if days and days.is_old_enough else None,
        versions=days is not None,
    )


@views.get("/jobs/<name>/versions")
def versions(name: str) -> Response:
    """The definitions that it has had, and what changed between two of them."""
    cursor = request.args.get("cursor", "")
    found = _versions(name, ITEMS, cursor)
    shown = _version(name, request.args.get("version", ""), found.versions)
    before = request.args.get("before", "")
    other = None
    if shown:
        other = _version(name, before, found.versions) if before else _earlier(name, shown.version)
    lines = spec_diff(other.spec, shown.spec) if shown and other else []
    return page(
        "job_versions",
        name=name,
        versions=found,
        cursor=cursor,
        shown=shown,
        other=other,
        lines=lines,
        definition=indent(shown.spec) if shown else "",
    )


def _version(name: str, text: str, known: Sequence[JobVersion]) -> JobVersion | None:
    """The version of this number, the newest known one without a number. Raises NOT_FOUND."""
    if not text:
        return known[0] if known else None
    number = int(text) if text.isascii() and text.isdigit() and len(text) < MAX_DIGITS else 0
    found = next((one for one in known if one.version == number), None) or _earlier(name, number + 1)
    if found is None or found.version != number:
        raise TobanError(
            ErrorCode.NOT_FOUND, f"job {name!r} has no version {text[:MAX_DIGITS]!r}; choose one of the list"
        )
    return found


def _earlier(name: str, number: int) -> JobVersion | None:
    """The version before a number, None without one."""
    if number < 1:
        return None
    found = _versions(name, 1, str(number)).versions
    return found[0] if found else None


def _versions(name: str, limit: int, cursor: str) -> JobVersionPage:
    return read("JobReader.ListJobVersions", JobVersionPage, name=name, page={"limit": limit, "cursor": cursor})


def _days(name: str) -> DayMap | None:
    found = if_implemented(lambda: read("JobReader.GetJobDays", JobDays, name=name, days=DAYS).days)
    return None if found is None else day_map(found, context().clock.wall().astimezone(UTC).date())


def _triggers(name: str) -> list[Trigger]:
    """Coordinators of an earlier release answer with those of all jobs."""
    found = read("JobReader.ListTriggers", TriggerPage, job=name, page={"limit": TRIGGERS})
    return [one for one in found.triggers if one.job == name]


def _coming(job: Job) -> list[tuple[Schedule, NextSlot]]:
    """The next slots of its schedules that make runs, the earliest first.

    The first COMING slots belong to the COMING schedules that fire first; each of these is asked by a call of its own.
    """
    first = sorted((one for one in job.schedules if one.next_run_at), key=lambda one: one.next_run_at or LATEST)
    found = [(one, slot) for one in first[:COMING] for slot in _slots(one)]
    return sorted(found, key=lambda pair: pair[1].at or LATEST)[:COMING]


def _slots(schedule: Schedule) -> Sequence[NextSlot]:
    """Those from its next run on: slots within a pause get no runs."""
    paused = schedule.paused_until or schedule.job_disabled_until
    after = schedule.next_run_at - TICK if paused and schedule.next_run_at else None
    found = if_implemented(
        lambda: read("JobReader.NextSlots", NextSlots, name=schedule.name, count=COMING, after=after).slots
    )
    return found or ()
