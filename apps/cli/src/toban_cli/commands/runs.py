"""`toban run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import call, collect, connect
from toban_cli.completion_values import schedule_names
from toban_cli.formatting import NOTHING, age, brief, local, took, wall_now
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Format, JobName, Limit, OfJob, Output, RunId
from toban_cli.output import Column, show, show_data, show_done, show_one
from toban_cli.watch import Watch, watch

if TYPE_CHECKING:
    from datetime import datetime

Params = Annotated[
    list[str] | None, typer.Option("--param", "-p", metavar="K=V", help="A parameter: k=v is text, k:=v is JSON.")
]
Payload = Annotated[
    str, typer.Option("--payload", metavar="JSON|@FILE", help="The whole payload; --param overrides its keys.")
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help='When: "2026-12-01 09:00", 2026-12-01T09:00:00+01:00, or +10m.'),
]
Zone = Annotated[
    str, typer.Option("--timezone", metavar="ZONE", help="Zone of --at when it names none (default: this machine's).")
]
Key = Annotated[
    str, typer.Option("--idempotency-key", metavar="KEY", help="Runs with the same key are started only once.")
]
Scope = Annotated[
    str,
    typer.Option(
        "--scope", metavar="SCOPE[:ID]", help="For which tenant: system, account:17, user:ada. Tenants take turns."
    ),
]
IgnoreLimits = Annotated[
    bool, typer.Option("--ignore-limits", help="Start whatever limits and breakers say; it counts, and is audited.")
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end of the run; the exit code is its result.")]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Print the output as it arrives, then exit as with --wait.")
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help="Only runs in this state; can be repeated.",
        autocompletion=lambda incomplete: _state_names(incomplete),
    ),
]
OfSchedule = Annotated[
    str,
    typer.Option("--schedule", metavar="SCHEDULE", help="Only those of this schedule.", autocompletion=schedule_names),
]
OnExecutor = Annotated[
    str, typer.Option("--executor", metavar="EXECUTOR", help="Only those of this node, instance or worker id.")
]
Origin = Annotated[
    str, typer.Option("--origin", metavar="ORIGIN", help="Only those made by slot, demand, event or rerun.")
]
OfScope = Annotated[
    str, typer.Option("--scope", metavar="SCOPE[:ID]", help="Only those of this scope: system, account:17, user:ada.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="K=V", help="Only those of jobs with this label; can be repeated."),
]
Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help='Only those active later: 2h (ago), "2026-12-01 09:00", a date.')
]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="Only those created before.")]
Ahead = Annotated[bool, typer.Option("--ahead", "-a", help="Include runs that exist already but are not yet due.")]


def start(
    job: JobName,
    param: Params = None,
    payload: Payload = "",
    at: At = None,
    timezone: Zone = "",
    idempotency_key: Key = "",
    scope: Scope = "",
    ignore_limits: IgnoreLimits = False,
    reason: AuditReason = "",
    wait: Wait = False,
    follow: Follow = False,
    output: Output = Format.TABLE,
) -> int:
    """Start a run, now or at a time.

    Examples:
    toban run start hello --param name=Ada --wait --follow
    toban run start hello --at +10m
    toban run start hello --at "2026-12-01 09:00" --timezone Europe/Berlin
    toban run start hello --scope account:17
    toban run start hello --ignore-limits --reason "the customer waits"
    """
    request, result = _start_request(job, param or [], payload, at, timezone, idempotency_key)
    request.scope, _, request.scope_id = scope.partition(":")
    request.ignore_limits = ignore_limits
    with connect(waits=wait or follow) as client:
        started = client.call("JobControl.StartRuns", pb.StartRunsRequest(runs=[request], reason=reason)).runs[0]
        result = result if started.created else "exists already for this key"
        if not (wait or follow):
            show_done(output, started, f"run {started.run_id} {result}")
            return 0
        report.note(f"run {started.run_id} of {job} {result}")
        return wait_for(client, started.run_id, follow=follow, output=output)


def list_runs(
    job: OfJob = "",
    state: States = None,
    schedule: OfSchedule = "",
    executor: OnExecutor = "",
    origin: Origin = "",
    scope: OfScope = "",
    label: Labels = None,
    since: Since = "",
    until: Until = "",
    ahead: Ahead = False,
    limit: Limit = 20,
    output: Output = Format.TABLE,
    watch_seconds: Watch = None,
) -> None:
    """List the runs that were due, newest first.

    Examples:
    toban run list --job hello --state FAILED
    toban run list --executor host-a --since 2h
    toban run list --label team=ops --scope account:17 --origin event
    toban run list --watch 5
    toban run list --state RUNNING -o name | xargs -n 1 toban run cancel
    """
    from toban_cli.run_filter import run_filter

    wanted = run_filter(
        pb.ListRunsRequest(job=job, schedule=schedule, executor=executor, origin=origin, include_ahead=ahead),
        states=state or [],
        scope=scope,
        labels=label or [],
        since=since,
        until=until,
        now=wall_now(),
    )
    empty = "No runs. Start one with `toban run start JOB`." if wanted == pb.ListRunsRequest() else "No such runs."
    wanted.brief = not output.is_data
    with connect() as client:

        def fetch(page: Any) -> Any:
            wanted.page.CopyFrom(page)
            return client.call("JobReader.ListRuns", wanted)

        def refresh() -> None:
            found, _ = collect(fetch, "runs", limit)
            if job and not found:
                # Raises JOB_NOT_FOUND with the nearest name when there is no such job.
                client.call("JobReader.GetJob", pb.GetJobRequest(name=job))
            table, wide = _columns(wall_now())
            show(output, found, table=table, wide=wide, empty=empty)

        watch(refresh, watch_seconds, output)


def get_run(run: RunId, output: Output = Format.TABLE, watch_seconds: Watch = None) -> None:
    """Show one run with its attempts and events. --watch ends with the run.

    Examples:
    toban run get 12
    toban run get 12 --watch
    """
    from toban_cli.log_reader import format_stored_log, stored_log
    from toban_cli.proto_json import plain
    from toban_cli.run_details import show_run
    from toban_domain.run import TERMINAL

    with connect() as client:

        def refresh() -> bool:
            found = client.call("JobReader.GetRun", pb.GetRunRequest(id=run))
            if output is Format.NAME:
                show_one(output, found, page=lambda _: None)
                return found.state in TERMINAL
            stored = stored_log(client, found)
            if output.is_data:
                show_data(output, {**plain(found), "log": stored})
            else:
                log = format_stored_log(found.log_ref, stored)
                show_run(found, wall_now(), wide=output is Format.WIDE, log=log)
            return found.state in TERMINAL

        watch(refresh, watch_seconds, output)


def why(run: RunId, output: Output = Format.TABLE) -> None:
    """Show why a run waits, was skipped, or is where it is: rules, limits and their holders, executors, the queue.

    Examples:
    toban run why 12
    toban run why 12 -o json
    """
    from toban_cli.run_why import show_why

    found = call("JobReader.ExplainRun", pb.GetRunRequest(id=run))
    show_one(output, found, page=lambda _: show_why(found, wall_now()))


def usage(run: RunId, output: Output = Format.TABLE) -> None:
    """Show CPU and memory of the processes of a run while it runs, sampled by its executor each five seconds.

    Containers and pods are not among them.

    Examples:
    toban run usage 12
    toban run usage 12 -o json
    """
    found, now = call("JobReader.GetRunUsage", pb.GetRunRequest(id=run)), wall_now()
    table = (
        Column("AT", lambda one: local(one.at, now)),
        Column("CPU SECONDS", lambda one: f"{one.cpu_seconds:.1f}"),
        Column("MEMORY MIB", lambda one: f"{one.memory_bytes / (1 << 20):.1f}"),
        Column("PROCESSES", lambda one: str(one.processes)),
    )
    show_one(
        output,
        found,
        page=lambda _: show(Format.TABLE, found.samples, table=table, empty=found.note),
        name=lambda _: str(run),
    )


def kill(run: RunId, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """End the processes of a run: SIGTERM at once, SIGKILL after the grace. It waits for no step and is audited.

    It also ends runs that are being cancelled already, and those whose job says `cancel.supported: false`.

    Examples:
    toban run kill 12 --reason "it holds a lock that others need"
    """
    answer = call("JobControl.CancelRun", pb.CancelRunRequest(id=run, reason=reason, mode="kill")).run
    show_done(output, answer, f"run {run} {answer.state}")


def lost(run: RunId, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Stop waiting for the executor that was fenced under a run. It repeats elsewhere, bounded by max_lost.

    Only for ORPHANED runs of jobs with on_lease_loss: continue. If the old execution still runs, both run at the same time.

    Examples:
    toban run lost 12 --reason "host-a has burnt down"
    """
    answer = call("JobControl.DeclareRunLost", pb.DeclareRunLostRequest(id=run, reason=reason)).run
    show_done(output, answer, f"run {run} waits no more for its executor")


def _start_request(
    job: str, params: list[str], payload: str, at: str | None, timezone: str, key: str
) -> tuple[Any, str]:
    """The request, and the result to print when the run was created."""
    from toban_cli.payload_args import build_payload
    from toban_domain.payload import canonical_json
    from toban_runtime.ids import IdSource

    # With a key of our own at least: the call may be sent again to another coordinator.
    request = pb.StartRunRequest(
        job=job,
        payload_json=canonical_json(build_payload(payload, params)),
        idempotency_key=key or f"cli-{IdSource().uuid()}",
    )
    if timezone and at is None:
        raise typer.BadParameter("is for --at, which is not given", param_hint="--timezone")
    if at is None:
        return request, "started"
    from toban_cli.times import read_start_time

    now = wall_now()
    request.scheduled_for.FromDatetime(read_start_time(at, now, timezone))
    return request, f"starts at {local(request.scheduled_for, now)}"


def _columns(now: datetime) -> tuple[list[Column], list[Column]]:
    from toban_cli.exit_status import format_exit
    from toban_cli.run_details import format_progress, origin, scope_of

    table = [
        Column("RUN", lambda run: str(run.id)),
        Column("JOB", lambda run: run.job, loose=True),
        Column("STATE", lambda run: run.state),
        Column("DUE", lambda run: age(run.scheduled_for, now)),
        Column("TOOK", lambda run: took(run.started_at, run.finished_at, now)),
        Column("EXIT", format_exit),
        Column("TRY", lambda run: str(run.attempt)),
        Column("EXECUTOR", lambda run: run.executor or NOTHING, loose=True),
        Column(
            "LAST LINE", lambda run: run.last_line or run.error_summary or run.reason or run.deferred_on, loose=True
        ),
    ]
    wide = [
        Column("PROGRESS", lambda run: format_progress(run) or NOTHING, loose=True),
        Column("ORIGIN", origin, loose=True),
        Column("SCOPE", scope_of, loose=True),
        Column("DUE AT", lambda run: brief(run.scheduled_for, now)),
        Column("STARTED", lambda run: brief(run.started_at, now)),
        Column("FINISHED", lambda run: brief(run.finished_at, now)),
        Column("LOST", lambda run: str(run.lost_count)),
        Column("VERSION", lambda run: str(run.definition_version)),
        Column("BY", lambda run: run.created_by or NOTHING, loose=True),
    ]
    return table, wide


def wait_for(client: Any, run_id: int, *, follow: bool, output: Format) -> int:
    """Waits for the end of a run; the exit code of its result."""
    from toban_cli.exit_status import result_code

    run = attend_run(client, run_id, show_log=follow, output=output)
    return result_code(run)


def attend_run(
    client: Any,
    run_id: int,
    *,
    show_log: bool = True,
    query: Any = None,
    printer: Any = None,
    output: Format = Format.TABLE,
) -> Any:
    """Waits for the end of a run while showing its output, prints its result, and returns the run."""
    from toban_cli.exit_status import final_line
    from toban_cli.follow import attend

    try:
        run = attend(client.run_source(run_id), run_id, show_log=show_log, query=query, printer=printer)
    except KeyboardInterrupt:
        report.note(
            f"\nrun {run_id} continues. Show it with `toban run get {run_id}`, stop it with `toban run cancel {run_id}`"
        )
        raise
    show_one(output, run, page=lambda _: None)
    report.note(final_line(run))
    return run


def _state_names(incomplete: str) -> list[str]:
    from toban_domain.run import RunState

    return [state for state in RunState if state.startswith(incomplete.upper())]
