"""`toban schedule`: list, get, next, pause, resume, remove."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import call, collect, connect, note_more
from toban_cli.completion_values import schedule_names
from toban_cli.formatting import NOTHING, age, brief, count, local, to_time, wall_now
from toban_cli.messages import common_pb, pb
from toban_cli.options import Format, Limit, OfJob, Output, ScheduleName, Until, check_given_name, check_reason
from toban_cli.output import Column, show, show_data, show_done, show_one
from toban_cli.sanitize import clean
from toban_cli.watch import Watch, watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

FIRES_SHOWN = 5
NEXT_SHOWN = 3
DEFAULT_COUNT = 5
Reason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", callback=check_reason, help="Why; shown with the schedule."),
]
Which = Annotated[
    str,
    typer.Argument(
        metavar="[JOB|SCHEDULE]",
        help="Name of a schedule, or of a job for all of its schedules.",
        show_default=False,
        callback=check_given_name,
        autocompletion=schedule_names,
    ),
]
Count = Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="Number of slots of each schedule.")]
After = Annotated[
    str,
    typer.Option(
        "--after",
        metavar="TIME",
        help="Slots after this time instead of now: 2026-12-01, 2026-12-01T09:00:00+01:00, +10m, or 10m (ago).",
    ),
]
OfFiles = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", metavar="FILE", help="Use the schedules of a YAML file or folder; needs no cluster."),
]


def list_schedules(
    job: OfJob = "", limit: Limit = 100, output: Output = Format.TABLE, watch_seconds: Watch = None
) -> None:
    """List the schedules with their next slots.

    Examples:
    toban schedule list --job hello
    toban schedule list --watch
    """
    with connect() as client:

        def fetch(page: Any) -> Any:
            return client.call("JobReader.ListSchedules", pb.ListSchedulesRequest(page=page, job=job))

        def refresh() -> None:
            found, more = collect(fetch, "schedules", limit)
            if job and not found:
                # Raises JOB_NOT_FOUND with the nearest name when there is no such job.
                client.call("JobReader.GetJob", pb.GetJobRequest(name=job))
            table, wide = _columns(wall_now())
            empty = "No schedules. Make one with `toban schedule add`, or some with `toban apply -f FILE`."
            show(output, found, table=table, wide=wide, empty=empty)
            if more and watch_seconds is None:
                note_more("schedules", limit)

        watch(refresh, watch_seconds, output)


def get_schedule(name: ScheduleName, output: Output = Format.TABLE) -> None:
    """Show one schedule: its definition, its next slots, and the outcomes of its last slots.

    Examples:
    toban schedule get nightly
    toban schedule get nightly -o yaml
    """
    from toban_cli.proto_json import plain, plain_list

    with connect() as client:
        schedule = client.call("JobReader.GetSchedule", pb.GetScheduleRequest(name=name))
        coming = client.call("JobReader.NextSlots", pb.NextSlotsRequest(name=name, count=NEXT_SHOWN))
        fires = client.call(
            "JobReader.ListFires", pb.ListFiresRequest(schedule=name, page=common_pb.Page(limit=FIRES_SHOWN))
        ).fires
    if output.is_data:
        found = {**plain(schedule), "note": coming.note, "next_slots": plain_list(coming.slots)}
        show_data(output, {**found, "fires": plain_list(fires)})
        return
    show_one(output, schedule, page=lambda _: _page(schedule, coming, fires, wall_now()))


def next_slots(
    which: Which = "",
    count: Count = DEFAULT_COUNT,
    after: After = "",
    file: OfFiles = None,
    output: Output = Format.TABLE,
) -> None:
    """Show when schedules fire next: local time, UTC, and the DST rule that applied.

    Examples:
    toban schedule next nightly
    toban schedule next report --count 20
    toban schedule next report --after "2027-03-28 00:00"
    toban schedule next -f my-job.yaml
    """
    from toban_cli.next_slots import of_cluster, of_files, read_after
    from toban_domain.errors import ErrorCode, TobanError

    if not which and not file:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, "no schedule is named; name a schedule or a job, or give a file with --file"
        )
    now = wall_now()
    begin = read_after(after, now)
    found = of_files(file, which, count, begin, now) if file else of_cluster(which, count, begin)
    if output.is_data:
        from toban_cli.proto_json import plain

        show_data(output, [{"schedule": name, **plain(answer)} for name, answer in found])
    elif output is Format.NAME:
        for name, _ in found:
            report.echo(name)
    else:
        for number, (name, answer) in enumerate(found):
            _print_slots_of(name, answer, first=number == 0)


def pause(name: ScheduleName, until: Until = "", reason: Reason = "", output: Output = Format.TABLE) -> None:
    """Pause a schedule, for good or until a time: its slots get no runs and are recorded as paused. Dispatched runs continue.

    Another time for a paused schedule replaces the one that it has.

    Examples:
    toban schedule pause nightly --reason "the database is moved"
    toban schedule pause nightly --until 2026-12-01T08:00+01:00
    """
    from toban_cli.times import read_start_time

    now = wall_now()
    request = pb.PauseScheduleRequest(name=name, reason=reason)
    if until:
        request.until.FromDatetime(read_start_time(until, now, option="--until"))
    schedule = call("JobControl.PauseSchedule", request)
    end = f" until {local(request.until, now)}" if until else ""
    if until and schedule.HasField("next_run_at"):
        end += f", next at {local(schedule.next_run_at, now)}"
    how = "resume it earlier with" if until else "resume it with"
    show_done(output, schedule, f"schedule {name} paused{end}; {how} `toban schedule resume {name}`")


def resume(name: ScheduleName, reason: Reason = "", output: Output = Format.TABLE) -> None:
    """Resume a schedule after a pause or a failure, from its next slot on. Past slots get no runs.

    Examples:
    toban schedule resume nightly --reason "the database is back"
    """
    schedule = call("JobControl.ResumeSchedule", pb.ResumeScheduleRequest(name=name, reason=reason))
    after = (
        f"next at {local(schedule.next_run_at, wall_now())}"
        if schedule.HasField("next_run_at")
        else "it has no further slots"
    )
    show_done(output, schedule, f"schedule {name} is active again, {after}")


def delete(name: ScheduleName, reason: Reason = "", output: Output = Format.TABLE) -> None:
    """Delete a schedule. Runs of due slots continue; the records of its slots are kept.

    Examples:
    toban schedule delete nightly --reason "replaced by hourly"
    """
    answer = call("JobControl.DeleteSchedule", pb.DeleteScheduleRequest(name=name, reason=reason))
    taken = answer.withdrawn_runs
    back = f"; {count(taken, 'run')} of future slots withdrawn"
    show_done(output, answer, f"schedule {name} deleted{back if taken else ''}", name=lambda _: name)


def _columns(now: datetime) -> tuple[list[Column], list[Column]]:
    table = [
        Column("NAME", lambda item: item.name, name=True),
        Column("JOB", lambda item: item.job, loose=True),
        Column("RULE", lambda item: item.rule, loose=True),
        Column("STATUS", lambda item: _status(item, lambda end: brief(end, now))),
        Column("NEXT", lambda item: brief(item.next_run_at, now)),
        Column("LAST", lambda item: age(item.last_run_at, now)),
        Column("WHY", lambda item: item.status_reason or item.last_error or NOTHING, loose=True),
    ]
    wide = [
        Column("ZONE", lambda item: item.timezone or NOTHING),
        Column("VERSION", lambda item: str(item.version)),
        Column("UPDATED", lambda item: age(item.updated_at, now)),
        Column("BY", lambda item: item.updated_by or NOTHING, loose=True),
        Column("DESCRIPTION", lambda item: item.description or NOTHING, loose=True),
    ]
    return table, wide


def _status(schedule: Any, shown: Callable[[Any], str]) -> str:
    """Until when, and whether its job is disabled: then it is not active, whatever its own status is."""
    own = str(schedule.status) if schedule.enabled else "disabled"
    if schedule.HasField("paused_until"):
        own += f" until {shown(schedule.paused_until)}"
    if not schedule.job_disabled:
        return own
    end = f" until {shown(schedule.job_disabled_until)}" if schedule.HasField("job_disabled_until") else ""
    return f"job disabled{end}" if own == "active" else f"{own}, job disabled{end}"


def _page(schedule: Any, coming: Any, fires: Any, now: datetime) -> None:
    from toban_cli.schedule_options import stored_spec
    from toban_cli.tables import facts

    spec = stored_spec(schedule)
    by = f" by {schedule.status_actor}" if schedule.status_actor else ""
    why = f": {schedule.status_reason}" if schedule.status_reason else ""
    dst = spec.get("dst", {})
    facts(
        [
            ("Name", schedule.name),
            ("Description", schedule.description),
            ("Job", schedule.job),
            ("Rule", schedule.rule),
            ("Zone", schedule.timezone),
            ("DST", ", ".join(f"{key} {value}" for key, value in sorted(dst.items()))),
            ("Status", f"{_status(schedule, lambda end: local(end, now))}{by}{why}"),
            ("Note", coming.note),
            ("Next", local(schedule.next_run_at, now) if schedule.HasField("next_run_at") else ""),
            ("Last", local(schedule.last_run_at, now)),
            ("Last error", schedule.last_error),
            ("Start", spec.get("start", "")),
            ("End", spec.get("end", "")),
            ("Catch up", _catch_up(spec)),
            ("On failure", "remove" if spec.get("on_failure") == "remove" else ""),
            ("Payload", json.dumps(spec["payload"], ensure_ascii=False) if spec.get("payload") else ""),
            ("Version", f"{schedule.version}, {local(schedule.updated_at, now)} by {schedule.updated_by or 'unknown'}"),
        ]
    )
    _print_slots(coming.slots, "Next slots")
    _print_fires(fires)


def _catch_up(spec: dict[str, Any]) -> str:
    given = spec.get("catch_up", {})
    policy = given.get("policy", "all")
    return f"{policy}, at most {given.get('max', 100)}" if policy == "all" else str(policy)


def _print_slots_of(name: str, answer: Any, *, first: bool) -> None:
    note = f" · {answer.note}" if answer.note else ""
    report.echo(f"{'' if first else chr(10)}{clean(f'{name}: {answer.rule}{note}')}")
    _print_slots(answer.slots, "")


def _print_slots(slots: Any, title: str) -> None:
    from toban_cli.tables import table

    if not slots:
        return
    if title:
        report.echo(f"\n{title}")
    rows = [[slot.local, f"{to_time(slot.at):%Y-%m-%dT%H:%M:%SZ}", slot.rule_note or NOTHING] for slot in slots]
    table(["LOCAL", "UTC", "RULE OF DST"], rows, loose=["RULE OF DST"])


def _print_fires(fires: Any) -> None:
    from toban_cli.tables import table

    if not fires:
        return
    report.echo("\nLast slots")
    rows = [
        [
            f"{to_time(fire.first_slot):%Y-%m-%dT%H:%M:%SZ}",
            str(fire.slots),
            fire.outcome,
            str(fire.run_id) if fire.run_id else NOTHING,
            fire.message or NOTHING,
        ]
        for fire in fires
    ]
    table(["SLOT", "SLOTS", "OUTCOME", "RUN", "MESSAGE"], rows, loose=["MESSAGE"])
