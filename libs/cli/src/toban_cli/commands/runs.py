"""`toban run`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from toban_cli import report
from toban_cli.options import Format, Limit, Output

JobName = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.", show_default=False)]
RunId = Annotated[int, typer.Argument(metavar="RUN", min=1, help="Number of the run.", show_default=False)]
Params = Annotated[
    list[str] | None, typer.Option("--param", "-p", metavar="K=V", help="A parameter: k=v is text, k:=v is JSON.")
]
Payload = Annotated[
    str, typer.Option("--payload", metavar="JSON|@FILE", help="The whole payload; --param is laid over it.")
]
Key = Annotated[str, typer.Option("--idempotency-key", help="Starting twice with one key starts one run.")]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end and exit with the result.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Show the output as it comes, then as --wait.")]
FollowLogs = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")]
Tail = Annotated[int, typer.Option("--tail", min=0, metavar="N", help="Only the last N lines; 0 = all.")]
OfJob = Annotated[str, typer.Option("--job", help="Only those of this job.")]
States = Annotated[
    list[str] | None, typer.Option("--state", help="Only those in this state; may be given several times.")
]
Ahead = Annotated[bool, typer.Option("--ahead", "-a", help="Also runs that are made already and not yet due.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept with the run.")]
Kill = Annotated[bool, typer.Option("--kill", help="End the processes at once instead of asking them.")]


def start(
    job: JobName,
    param: Params = None,
    payload: Payload = "",
    idempotency_key: Key = "",
    wait: Wait = False,
    follow: Follow = False,
    output: Output = Format.TABLE,
) -> int:
    """Start a run now."""
    from toban_cli.client import connect
    from toban_cli.params import build_payload
    from toban_cli.plain import plain
    from toban_domain.payload import canonical_json
    from toban_proto.v1.coordinator_pb2 import StartRunRequest, StartRunsRequest
    from toban_runtime.ids import IdSource

    body = canonical_json(build_payload(payload, param or []))
    # With a key of our own at least: the call may be sent again to another coordinator.
    key = idempotency_key or f"cli-{IdSource().uuid()}"
    request = StartRunRequest(job=job, payload_json=body, idempotency_key=key)
    with connect() as client:
        started = client.control("StartRuns", StartRunsRequest(runs=[request])).runs[0]
        if not (wait or follow):
            if output is Format.JSON:
                report.data(plain(started))
            else:
                report.say(f"run {started.run_id} {'started' if started.created else 'exists already for this key'}")
            return 0
        report.note(f"run {started.run_id} of {job} {'started' if started.created else 'exists already for this key'}")
        return _attend(client, started.run_id, follow=follow, output=output)


def list_runs(
    job: OfJob = "", state: States = None, ahead: Ahead = False, limit: Limit = 20, output: Output = Format.TABLE
) -> None:
    """Runs that were due, the newest first."""
    from toban_cli.client import connect
    from toban_cli.human import NOTHING, age, took
    from toban_cli.plain import plain_list
    from toban_cli.tables import table
    from toban_proto.v1.common_pb2 import Page
    from toban_proto.v1.coordinator_pb2 import ListRunsRequest

    states = _states(state or [])
    with connect() as client:
        request = ListRunsRequest(page=Page(limit=limit), job=job, states=states, include_ahead=ahead)
        found = client.read("ListRuns", request).runs
    if output is Format.JSON:
        report.data(plain_list(found))
        return
    now = _now()
    rows = [
        [
            str(run.id),
            run.job,
            run.state,
            age(run.scheduled_for, now),
            took(run.started_at, run.finished_at, now) if run.HasField("started_at") else NOTHING,
            _exit(run),
            str(run.attempt),
            run.executor or NOTHING,
            run.last_line or run.error_summary or run.reason,
        ]
        for run in found
    ]
    headers = ["RUN", "JOB", "STATE", "DUE", "TOOK", "EXIT", "TRY", "EXECUTOR", "LAST LINE"]
    table(headers, rows, loose=["JOB", "EXECUTOR", "LAST LINE"], empty="No runs. Start one with `toban run start JOB`.")


def get_run(run: RunId, output: Output = Format.TABLE) -> None:
    """One run with its attempts and events."""
    from toban_cli.client import connect
    from toban_cli.plain import plain
    from toban_cli.run_page import show_run
    from toban_proto.v1.coordinator_pb2 import GetRunRequest

    with connect() as client:
        found = client.read("GetRun", GetRunRequest(id=run))
    if output is Format.JSON:
        report.data(plain(found))
    else:
        show_run(found, _now())


def logs(run: RunId, follow: FollowLogs = False, tail: Tail = 0) -> int:
    """The output of a run: its stdout on stdout, its stderr on stderr."""
    from toban_cli.client import connect
    from toban_cli.lines import LinePrinter
    from toban_proto.v1.coordinator_pb2 import GetRunRequest
    from toban_proto.v1.logs_pb2 import ReadLogRequest

    with connect() as client:
        client.read("GetRun", GetRunRequest(id=run))
        if follow:
            _attend(client, run, follow=True, output=Format.TABLE, tail=tail)
            return 0
        printer = LinePrinter()
        for answer in client.log(ReadLogRequest(run_id=run, tail=tail)):
            printer.show(answer)
    return 0


def cancel(run: RunId, reason: Reason = "", kill: Kill = False, output: Output = Format.TABLE) -> None:
    """Ask a run to stop."""
    from toban_cli.client import connect
    from toban_cli.plain import plain
    from toban_proto.v1.coordinator_pb2 import CancelRunRequest

    with connect() as client:
        answer = client.control("CancelRun", CancelRunRequest(id=run, reason=reason, mode="kill" if kill else "")).run
    if output is Format.JSON:
        report.data(plain(answer))
    else:
        report.say(f"run {run} {answer.state}")


def _attend(client: Any, run_id: int, *, follow: bool, output: Format, tail: int = 0) -> int:
    """Waits for the end of a run; the exit code that says its result."""
    from toban_cli.follow import attend
    from toban_cli.plain import plain
    from toban_cli.results import final_line, result_code

    try:
        run = attend(client, run_id, show_log=follow, tail=tail)
    except KeyboardInterrupt:
        report.note(
            f"\nrun {run_id} goes on. See it with `toban run get {run_id}`, stop it with `toban run cancel {run_id}`"
        )
        raise
    if output is Format.JSON:
        report.data(plain(run))
    report.note(final_line(run))
    return result_code(run)


def _states(given: list[str]) -> list[str]:
    from toban_domain.manifest.problems import nearest
    from toban_domain.run import RunState

    for state in given:
        if state.upper() not in RunState.__members__:
            near = nearest(state.upper(), RunState.__members__)
            hint = f"did you mean {near}?" if near else f"one of {', '.join(RunState)}"
            raise typer.BadParameter(f"{state!r} is not a state, {hint}", param_hint="--state")
    return [state.upper() for state in given]


def _exit(run: Any) -> str:
    from toban_cli.results import exit_words

    return exit_words(run)


def _now() -> Any:
    from toban_runtime.clock import SystemClock

    return SystemClock().wall()
