"""`toban run cancel`, `rerun` and `note`: one run, or every run that a filter names."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import call, connect
from toban_cli.commands.runs import (
    Ahead,
    Follow,
    Key,
    Labels,
    OfSchedule,
    OfScope,
    OnExecutor,
    Origin,
    Params,
    Payload,
    Since,
    States,
    Until,
    Wait,
    wait_for,
)
from toban_cli.completion_values import run_numbers
from toban_cli.formatting import wall_now
from toban_cli.messages import pb
from toban_cli.options import Format, OfJob, Output, RunId, Yes, check_reason
from toban_cli.output import show_done
from toban_cli.param_types import LARGEST

if TYPE_CHECKING:
    from toban_cli.change_runs import Selection

MaybeRun = Annotated[
    int | None,
    typer.Argument(
        metavar="[RUN]",
        min=1,
        max=LARGEST,
        help="Number of the run. Without it the options name runs.",
        show_default=False,
        autocompletion=run_numbers,
    ),
]
Reason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", callback=check_reason, help="Why; stored with the run."),
]
Kill = Annotated[bool, typer.Option("--kill", help="As `toban run kill`: end the processes at once, audited.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count the runs, and change nothing.")]
Latest = Annotated[
    bool, typer.Option("--latest-definition", help="With the definition as it is now, not as it was for the run.")
]
FromFailed = Annotated[
    bool,
    typer.Option(
        "--from-failed-step",
        help="Begin with the step at which the run ended; the steps before it do not run again.",
    ),
]
Priority = Annotated[
    int,
    typer.Option(
        "--priority",
        metavar="N",
        help="Runs of higher priority go first (default: that of the run, if you may give it).",
    ),
]
NewScope = Annotated[
    str,
    typer.Option(
        "--to-scope", metavar="SCOPE[:ID]", help="For another tenant than the run: system, account:17, user:ada."
    ),
]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="At most 1000 characters.", show_default=False)]


def cancel(
    run: MaybeRun = None,
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
    reason: Reason = "",
    kill: Kill = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> int:
    """Ask a run to stop, as `cancel` of its job says; or all live runs that the options name.

    A step that is not cancelable ends first. Runs that cannot be cancelled are skipped and counted by their reason.

    Examples:
    toban run cancel 12 --reason "wrong input"
    toban run cancel --job import --state PENDING --dry-run
    toban run cancel --label team=ops --since 2h --reason "bad release" --yes
    """
    from toban_cli.change_runs import change

    wanted = pb.ListRunsRequest(job=job, schedule=schedule, executor=executor, origin=origin, include_ahead=ahead)
    selection = _selection(run, wanted, state, scope, label, since, until, dry_run=dry_run, yes=yes)
    mode = "kill" if kill else ""
    with connect() as client:
        if selection is not None:
            request = pb.CancelRunsRequest(filter=selection.wanted, reason=reason, mode=mode)
            return change(client, "CancelRuns", request, selection, output, words=("cancel", "cancelled"))
        answer = client.call("JobControl.CancelRun", pb.CancelRunRequest(id=run or 0, reason=reason, mode=mode)).run
    show_done(output, answer, f"run {run} {answer.state}")
    return 0


def rerun(
    run: MaybeRun = None,
    param: Params = None,
    payload: Payload = "",
    latest_definition: Latest = False,
    from_failed_step: FromFailed = False,
    priority: Priority = 0,
    to_scope: NewScope = "",
    idempotency_key: Key = "",
    wait: Wait = False,
    follow: Follow = False,
    job: OfJob = "",
    state: States = None,
    schedule: OfSchedule = "",
    executor: OnExecutor = "",
    origin: Origin = "",
    scope: OfScope = "",
    label: Labels = None,
    since: Since = "",
    until: Until = "",
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> int:
    """Repeat a finished run as it was, or with changes; or all runs that the options name.

    Without --state the options name runs that FAILED, TIMED_OUT or EXPIRED. --param changes keys of the run's payload, --payload replaces it.

    Examples:
    toban run rerun 12 --follow
    toban run rerun 12 --param size:=5 --latest-definition
    toban run rerun 12 --from-failed-step
    toban run rerun --job import --since 2h --dry-run
    toban run rerun --schedule nightly --state FAILED --since "2026-12-01" --yes
    """
    wanted = pb.ListRunsRequest(job=job, schedule=schedule, executor=executor, origin=origin)
    selection = _selection(run, wanted, state, scope, label, since, until, dry_run=dry_run, yes=yes)
    changes: dict[str, Any] = {"latest_definition": latest_definition, "priority": priority, "reason": reason}
    if selection is None:
        one = pb.RerunRunRequest(id=run or 0, idempotency_key=idempotency_key, replace_payload=bool(payload), **changes)
        one.from_failed_step = from_failed_step
        one.scope, _, one.scope_id = to_scope.partition(":")
        return _rerun_one(one, payload, param or [], output, wait=wait, follow=follow)
    of_one = {"--param": param, "--payload": payload, "--to-scope": to_scope, "--idempotency-key": idempotency_key}
    _refuse_with_options(of_one | {"--from-failed-step": from_failed_step, "--wait": wait, "--follow": follow})
    return _rerun_many(pb.RerunRunsRequest(filter=selection.wanted, **changes), selection, output)


def _rerun_one(request: Any, payload: str, params: list[str], output: Format, *, wait: bool, follow: bool) -> int:
    from toban_cli.payload_args import build_payload
    from toban_domain.payload import canonical_json
    from toban_runtime.ids import IdSource

    request.payload_json = canonical_json(build_payload(payload, params))
    # With a key of our own at least: the call may be sent again to another coordinator.
    request.idempotency_key = request.idempotency_key or f"cli-{IdSource().uuid()}"
    with connect(waits=wait or follow) as client:
        started = client.call("JobControl.RerunRun", request)
        result = f"repeats run {request.id}" if started.created else "exists already for this key"
        if not (wait or follow):
            show_done(output, started, f"run {started.run_id} {result}")
            return 0
        report.note(f"run {started.run_id} {result}")
        return wait_for(client, started.run_id, follow=follow, output=output)


def _rerun_many(request: Any, selection: Selection, output: Format) -> int:
    from toban_cli.change_runs import change
    from toban_runtime.ids import IdSource

    request.operation = IdSource().uuid()
    with connect() as client:
        return change(client, "RerunRuns", request, selection, output, words=("repeat", "repeated"))


def note(run: RunId, text: Text, output: Output = Format.TABLE) -> None:
    """Keep a remark about a run among its events, for those who look at it later.

    Examples:
    toban run note 12 "the vendor had an outage; rerun at 9:00"
    """
    answer = call("JobControl.NoteRun", pb.NoteRunRequest(id=run, text=text))
    show_done(output, answer, f"note kept with run {run}", name=lambda _: str(run))


def _selection(
    run: int | None,
    wanted: Any,
    states: list[str] | None,
    scope: str,
    labels: list[str] | None,
    since: str,
    until: str,
    *,
    dry_run: bool,
    yes: bool,
) -> Selection | None:
    """The runs that options name; None when a number names one. Raises BadParameter for both and for neither."""
    from toban_cli.change_runs import Selection
    from toban_cli.run_filter import run_filter

    empty = type(wanted)()
    found = run_filter(
        wanted, states=states or [], scope=scope, labels=labels or [], since=since, until=until, now=wall_now()
    )
    if run is not None:
        if found != empty or dry_run:
            raise typer.BadParameter(
                "names one run; leave out the number, or the options that name many", param_hint="RUN"
            )
        return None
    bare = type(wanted)()
    bare.CopyFrom(found)
    bare.include_ahead = False
    if bare == empty:
        raise typer.BadParameter(
            "is missing; give a number, or options that name runs, such as --job", param_hint="RUN"
        )
    return Selection(wanted=found, dry_run=dry_run, ask=not yes and not dry_run, terminal=sys.stdin.isatty())


def _refuse_with_options(options: dict[str, Any]) -> None:
    for name, given in options.items():
        if given:
            raise typer.BadParameter("is for one run, by its number", param_hint=name)
