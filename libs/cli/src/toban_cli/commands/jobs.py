"""`toban job` and `toban schedule`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from toban_cli import report
from toban_cli.options import Format, Limit, Output

Name = Annotated[str, typer.Argument(help="Name of the job.", show_default=False)]


def list_jobs(limit: Limit = 100, output: Output = Format.TABLE) -> None:
    """The job definitions."""
    from toban_cli.client import connect
    from toban_cli.human import age
    from toban_cli.plain import plain_list
    from toban_cli.tables import table
    from toban_proto.v1.common_pb2 import Page
    from toban_proto.v1.coordinator_pb2 import ListJobsRequest

    with connect() as client:
        jobs = client.read("ListJobs", ListJobsRequest(page=Page(limit=limit))).jobs
    if output is Format.JSON:
        report.data(plain_list(jobs))
        return
    now = _now()
    rows = [
        [
            job.name,
            str(job.version),
            "yes" if job.enabled else "no",
            *_last_run(job, now),
            age(job.updated_at, now),
            job.description,
        ]
        for job in jobs
    ]
    headers = ["NAME", "VERSION", "ENABLED", "LAST RUN", "STATE", "UPDATED", "DESCRIPTION"]
    table(headers, rows, loose=["NAME", "DESCRIPTION"], empty="No jobs. Make some with `toban apply -f FILE`.")


def get_job(name: Name, output: Output = Format.TABLE) -> None:
    """One job definition."""
    from toban_cli.client import connect
    from toban_cli.human import local
    from toban_cli.plain import plain
    from toban_cli.tables import facts
    from toban_proto.v1.coordinator_pb2 import GetJobRequest

    with connect() as client:
        job = client.read("GetJob", GetJobRequest(name=name))
    if output is Format.JSON:
        report.data(plain(job))
        return
    now = _now()
    facts(
        [
            ("Name", job.name),
            ("Description", job.description),
            ("Version", str(job.version)),
            ("Enabled", "yes" if job.enabled else "no"),
            ("Updated", local(job.updated_at, now)),
            ("Schedules", ", ".join(f"{item.name} ({item.rule})" for item in job.schedules)),
            ("Last run", " ".join(_last_run(job, now)) if job.HasField("last_run") else ""),
        ]
    )
    report.say("Definition:\n" + json.dumps(json.loads(job.spec_json or "{}"), indent=2, ensure_ascii=False))


def list_schedules(
    job: Annotated[str, typer.Option("--job", help="Only those of this job.")] = "",
    limit: Limit = 100,
    output: Output = Format.TABLE,
) -> None:
    """The schedules, with their next slot."""
    from toban_cli.client import connect
    from toban_cli.human import age, brief
    from toban_cli.plain import plain_list
    from toban_cli.tables import table
    from toban_proto.v1.common_pb2 import Page
    from toban_proto.v1.coordinator_pb2 import ListSchedulesRequest

    with connect() as client:
        schedules = client.read("ListSchedules", ListSchedulesRequest(page=Page(limit=limit), job=job)).schedules
    if output is Format.JSON:
        report.data(plain_list(schedules))
        return
    now = _now()
    rows = [
        [
            item.name,
            item.job,
            item.rule,
            item.status if item.enabled else "disabled",
            brief(item.next_run_at, now),
            age(item.last_run_at, now),
        ]
        for item in schedules
    ]
    headers = ["NAME", "JOB", "RULE", "STATUS", "NEXT", "LAST"]
    table(headers, rows, loose=["NAME", "JOB", "RULE"], empty="No schedules. Make some with `toban apply -f FILE`.")


def _last_run(job: Any, now: Any) -> list[str]:
    from toban_cli.human import NOTHING, age

    run = job.last_run
    return [age(run.scheduled_for, now), run.state] if job.HasField("last_run") else [NOTHING, NOTHING]


def _now() -> Any:
    from toban_runtime.clock import SystemClock

    return SystemClock().wall()
