"""`toban schedule add` and `toban schedule set`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli.client import connect
from toban_cli.completion_values import job_names
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Format, Output, ScheduleName, check_name
from toban_cli.output import show_done

if TYPE_CHECKING:
    from toban_cli.schedule_options import Options

NewName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the schedule.", show_default=False, callback=check_name)
]
Job = Annotated[
    str, typer.Option("--job", metavar="JOB", help="The job to start.", show_default=False, autocompletion=job_names)
]
OtherJob = Annotated[
    str | None,
    typer.Option("--job", metavar="JOB", help="The job to start.", show_default=False, autocompletion=job_names),
]
Every = Annotated[
    str | None, typer.Option("--every", metavar="SPAN", help="30s, 5m, 1h30m: counted from the Unix epoch, no zone.")
]
Cron = Annotated[
    str | None, typer.Option("--cron", metavar="EXPR", help="5 fields, 6 with seconds first, or @daily and the like.")
]
DailyAt = Annotated[str | None, typer.Option("--daily-at", metavar="HH:MM", help="Local time of every day.")]
WeeklyAt = Annotated[
    str | None, typer.Option("--weekly-at", metavar="DAYS HH:MM", help='Weekdays and a local time: "mon-fri 03:00".')
]
HourlyAt = Annotated[
    int | None, typer.Option("--hourly-at-minute", metavar="MINUTE", min=0, max=59, help="Minute of every hour.")
]
Zone = Annotated[str | None, typer.Option("--timezone", metavar="ZONE", help="IANA name; UTC for a new schedule.")]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="K=V", help="A key of the payload: k=v is text, k:=v is JSON."),
]
Payload = Annotated[
    str | None, typer.Option("--payload", metavar="JSON|@FILE", help="The whole payload; --param overrides its keys.")
]
Start = Annotated[str | None, typer.Option("--start", metavar="TIME", help="No slot before this ISO time with offset.")]
End = Annotated[
    str | None, typer.Option("--end", metavar="TIME", help="No slot at or after this ISO time with offset.")
]
OnFailure = Annotated[
    str | None,
    typer.Option("--on-failure", metavar="keep|remove", help="The schedule when its fires have failed for good."),
]
CatchUp = Annotated[
    str | None,
    typer.Option("--catch-up", metavar="POLICY", help="Slots missed while no coordinator led: all, one or skip."),
]
Gap = Annotated[
    str | None,
    typer.Option("--gap", metavar="POLICY", help="A local time that does not exist: shift, run_after or skip."),
]
Fold = Annotated[
    str | None,
    typer.Option("--fold", metavar="POLICY", help="A local time that comes twice: first, second or both."),
]
Description = Annotated[str | None, typer.Option("--description", metavar="TEXT", help="Description of the schedule.")]
Disabled = Annotated[bool, typer.Option("--disabled", help="Create it disabled: it has no slots until it is enabled.")]
Enabled = Annotated[bool | None, typer.Option("--enabled/--disabled", help="Whether it has slots.", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would change; change nothing.")]
# The schedule must not exist yet.
NO_VERSION = 0


def add(
    name: NewName,
    job: Job,
    every: Every = None,
    cron: Cron = None,
    daily_at: DailyAt = None,
    weekly_at: WeeklyAt = None,
    hourly_at_minute: HourlyAt = None,
    timezone: Zone = None,
    param: Params = None,
    payload: Payload = None,
    start: Start = None,
    end: End = None,
    catch_up: CatchUp = None,
    on_failure: OnFailure = None,
    gap: Gap = None,
    fold: Fold = None,
    description: Description = None,
    disabled: Disabled = False,
    dry_run: DryRun = False,
    reason: AuditReason = "",
    output: Output = Format.TABLE,
) -> None:
    """Create a schedule with exactly one rule, and print when it fires next.

    Examples:
    toban schedule add nightly --job report --daily-at 03:00 --timezone Europe/Berlin
    toban schedule add often --job hello --every 30s -p name=Ada
    toban schedule add workdays --job report --cron "*/15 8-18 * * MON-FRI" --dry-run
    """
    from toban_cli.schedule_options import Options, new

    options = Options(
        job=job,
        every=every,
        cron=cron,
        daily_at=daily_at,
        weekly_at=weekly_at,
        hourly_at_minute=hourly_at_minute,
        timezone=timezone,
        start=start,
        end=end,
        catch_up=catch_up,
        on_failure=on_failure,
        gap=gap,
        fold=fold,
        payload=_payload({}, payload, param),
        description=description,
        enabled=False if disabled else None,
    )
    manifest = _manifest(name, new(name, options), NO_VERSION)
    with connect() as client:
        _apply(client, manifest, dry_run=dry_run, reason=reason, output=output)


def set_schedule(
    name: ScheduleName,
    job: OtherJob = None,
    every: Every = None,
    cron: Cron = None,
    daily_at: DailyAt = None,
    weekly_at: WeeklyAt = None,
    hourly_at_minute: HourlyAt = None,
    timezone: Zone = None,
    param: Params = None,
    payload: Payload = None,
    start: Start = None,
    end: End = None,
    catch_up: CatchUp = None,
    on_failure: OnFailure = None,
    gap: Gap = None,
    fold: Fold = None,
    description: Description = None,
    enabled: Enabled = None,
    dry_run: DryRun = False,
    reason: AuditReason = "",
    output: Output = Format.TABLE,
) -> None:
    """Change a schedule: only what the options name changes. An empty value removes a setting (--end "").

    Due slots are settled by the old rule first. Runs of later slots that were not dispatched are withdrawn.

    Examples:
    toban schedule set nightly --daily-at 04:00
    toban schedule set nightly --timezone Asia/Tokyo --dry-run
    toban schedule set often -p name=Grace
    """
    from toban_cli.schedule_options import Options, changed, stored_spec

    options = Options(
        job=job,
        every=every,
        cron=cron,
        daily_at=daily_at,
        weekly_at=weekly_at,
        hourly_at_minute=hourly_at_minute,
        timezone=timezone,
        start=start,
        end=end,
        catch_up=catch_up,
        on_failure=on_failure,
        gap=gap,
        fold=fold,
        description=description,
        enabled=enabled,
    )
    _check(options, payload, param)
    with connect() as client:
        stored = client.call("JobReader.GetSchedule", pb.GetScheduleRequest(name=name))
        document = changed(spec := stored_spec(stored), options)
        if (body := _payload(spec.get("payload", {}), payload, param)) is not None:
            document["spec"]["payload"] = body
        _apply(client, _manifest(name, document, stored.version), dry_run=dry_run, reason=reason, output=output)


def _check(options: Options, payload: str | None, param: list[str] | None) -> None:
    from toban_domain.errors import ErrorCode, TobanError

    if options == type(options)() and payload is None and not param:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            "nothing to change; give at least one option, such as --daily-at 04:00 or --timezone",
        )
    options.rule()


def _payload(stored: Mapping[str, Any], payload: str | None, param: list[str] | None) -> dict[str, Any] | None:
    """The payload as it will be: --payload in place of the stored one, overridden by each --param; None when neither is given."""
    from toban_cli.payload_args import build_payload
    from toban_domain.payload import canonical_json

    if payload is None and not param:
        return None
    return build_payload(canonical_json(dict(stored)) if payload is None else payload, param or [])


def _manifest(name: str, document: dict[str, Any], version: int) -> Any:
    """The document, checked, on condition of the version that it was made from."""
    from toban_manifests.problems import raise_for
    from toban_manifests.read import Document, find_problems
    from toban_schedule import problems

    source = f"schedule {name}"
    raise_for(find_problems([Document(source, document)], check_rule=problems)[1], detail_bytes=None)
    return pb.Manifest(json=json.dumps(document), source=source, expect_version=version)


def _apply(client: Any, manifest: Any, *, dry_run: bool, reason: str, output: Format) -> None:
    from toban_cli.commands.apply import APPLY_SECONDS

    request = pb.ApplyRequest(manifests=[manifest], dry_run=dry_run, reason=reason)
    [applied] = client.call("JobControl.Apply", request, timeout=APPLY_SECONDS).applied
    show_done(output, applied, _lines(applied, dry_run=dry_run))


def _lines(applied: Any, *, dry_run: bool) -> list[str]:
    from toban_cli.commands.apply import format_slot

    lines = [f"schedule {applied.name} {applied.action}{' (dry run)' if dry_run else ''}"]
    if applied.note:
        lines.append(f"  {applied.note}")
    lines += [f"  {format_slot(slot)}" for slot in applied.next_slots]
    return lines + ([f"  clocks change: {applied.clock_change}"] if applied.clock_change else [])
