"""`toban job`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import call, collect, connect, note_more
from toban_cli.formatting import NOTHING, age, brief, local, wall_now
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Format, JobName, Limit, Output, Until
from toban_cli.output import Column, show, show_done, show_one
from toban_cli.watch import Watch, watch

if TYPE_CHECKING:
    from datetime import datetime


WithSchedules = Annotated[bool, typer.Option("--with-schedules", help="Delete its schedules, too.")]
WithTriggers = Annotated[bool, typer.Option("--with-triggers", help="Delete its triggers, too.")]
CancelRuns = Annotated[bool, typer.Option("--cancel-runs", help="Cancel its live runs.")]
# Each live run is cancelled by itself.
DELETE_SECONDS = 60.0


def list_jobs(limit: Limit = 100, output: Output = Format.TABLE, watch_seconds: Watch = None) -> None:
    """List the job definitions.

    Examples:
    toban job list
    toban job list -o name | xargs -n 1 toban job get
    """
    with connect() as client:

        def refresh() -> None:
            jobs, more = collect(
                lambda page: client.call("JobReader.ListJobs", pb.ListJobsRequest(page=page)), "jobs", limit
            )
            table, wide = _job_columns(wall_now())
            show(output, jobs, table=table, wide=wide, empty="No jobs. Make some with `toban apply -f FILE`.")
            if more and watch_seconds is None:
                note_more("jobs", limit)

        watch(refresh, watch_seconds, output)


def get_job(name: JobName, output: Output = Format.TABLE) -> None:
    """Show one job definition.

    Examples:
    toban job get hello
    toban job get hello -o yaml
    """
    job = call("JobReader.GetJob", pb.GetJobRequest(name=name))
    show_one(output, job, page=lambda wide: _job_page(job, wall_now(), wide=wide))


def disable_job(name: JobName, until: Until = "", reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Disable a job: it starts nothing by schedule, event or demand until it is enabled, whatever is applied. Existing runs continue.

    With --until it is enabled by itself then. Another time for a disabled job replaces the one that it has.

    Examples:
    toban job disable import --reason "the source is being moved"
    toban job disable import --until 2026-12-01T08:00+01:00
    """
    from toban_cli.times import read_start_time

    now = wall_now()
    request = pb.DisableJobRequest(name=name, reason=reason)
    if until:
        request.until.FromDatetime(read_start_time(until, now, option="--until"))
    job = call("JobControl.DisableJob", request)
    end = f" until {local(request.until, now)}" if until else ""
    how = "enable it earlier with" if until else "enable it with"
    show_done(output, job, f"job {name} disabled{end}; {how} `toban job enable {name}`")


def enable_job(name: JobName, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Enable a job that was disabled with `toban job disable`. Slots that passed meanwhile get no runs.

    Examples:
    toban job enable import --reason "the source is back"
    """
    job = call("JobControl.EnableJob", pb.EnableJobRequest(name=name, reason=reason))
    lines = [f"job {name} enabled"] if job.enabled else [f"job {name} stays disabled: its manifest has enabled: false"]
    show_done(output, job, lines)


def delete_job(
    name: JobName,
    with_schedules: WithSchedules = False,
    with_triggers: WithTriggers = False,
    cancel_runs: CancelRuns = False,
    reason: AuditReason = "",
    output: Output = Format.TABLE,
) -> None:
    """Delete a job. Its runs stay readable, and its name can be used again.

    A job that has schedules, triggers or live runs is refused, unless the options let them go with it.

    Examples:
    toban job delete hello --reason obsolete
    toban job delete import --with-schedules --cancel-runs
    """
    request = pb.DeleteJobRequest(
        name=name, reason=reason, with_schedules=with_schedules, with_triggers=with_triggers, cancel_runs=cancel_runs
    )
    done = call("JobControl.DeleteJob", request, timeout=DELETE_SECONDS)
    show_done(output, done, deletion_lines(name, done), name=lambda _: name)


def deletion_lines(name: str, done: Any) -> list[str]:
    """What went with a job that was deleted."""
    lines = [f"job {name} deleted"]
    lines += [f"schedule {one} deleted" for one in done.schedules] + [f"trigger {one} deleted" for one in done.triggers]
    return lines + ([f"runs cancelled: {done.canceled_runs}"] if done.canceled_runs else [])


def _job_columns(now: datetime) -> tuple[list[Column], list[Column]]:
    table = [
        Column("NAME", lambda job: job.name, name=True),
        Column("VERSION", lambda job: str(job.version)),
        Column("ENABLED", lambda job: _enabled_brief(job, now)),
        Column("LAST RUN", lambda job: age(job.last_run.scheduled_for, now)),
        Column("STATE", lambda job: job.last_run.state or NOTHING),
        Column("UPDATED", lambda job: age(job.updated_at, now)),
        Column("DESCRIPTION", lambda job: job.description, loose=True),
    ]
    wide = [
        Column("WHY", lambda job: job.disabled_reason or NOTHING, loose=True),
        Column("STEPS", lambda job: str(len(_spec(job).get("steps", ())))),
        Column("TIMEOUT", lambda job: _seconds(_spec(job).get("timeout_seconds", 0))),
        Column("RETRIES", lambda job: str(_spec(job).get("retry", {}).get("max_retries", 0))),
        Column("LABELS", lambda job: _labels(_spec(job).get("labels", {})), loose=True),
    ]
    return table, wide


def _job_page(job: Any, now: datetime, *, wide: bool) -> None:
    from toban_cli.tables import facts

    run = job.last_run
    facts(
        [
            ("Name", job.name),
            ("Description", job.description),
            ("Version", str(job.version)),
            ("Enabled", _enabled(job, now)),
            ("Updated", local(job.updated_at, now)),
            ("Schedules", ", ".join(f"{item.name} ({item.rule})" for item in job.schedules)),
            ("Last run", f"{age(run.scheduled_for, now)} {run.state}" if job.HasField("last_run") else ""),
            ("Last run's number", str(run.id) if wide and job.HasField("last_run") else ""),
        ]
    )
    report.echo("Definition:\n" + report.json_text(_spec(job)))


def _enabled(job: Any, now: datetime) -> str:
    if job.enabled:
        return "yes"
    if not job.HasField("disabled_at"):
        return "no: its manifest has enabled: false"
    why = f": {job.disabled_reason}" if job.disabled_reason else ""
    end = f" until {local(job.disabled_until, now)}" if job.HasField("disabled_until") else ""
    return f"no: disabled{end} by {job.disabled_by} {age(job.disabled_at, now)}{why}"


def _enabled_brief(job: Any, now: datetime) -> str:
    return (
        "yes"
        if job.enabled
        else f"no, until {brief(job.disabled_until, now)}"
        if job.HasField("disabled_until")
        else "no"
    )


def _spec(job: Any) -> dict[str, Any]:
    spec = json.loads(job.spec_json or "{}")
    return spec if isinstance(spec, dict) else {}


def _seconds(limit: int) -> str:
    return f"{limit}s" if limit else "none"


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "-"
