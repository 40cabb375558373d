"""`toban delete`: what files name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import connect
from toban_cli.commands.apply import checked_files, noun_of
from toban_cli.commands.jobs import DELETE_SECONDS, CancelRuns, WithSchedules, WithTriggers, deletion_lines
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Files, Format, Output, SomeFiles, Yes, confirm
from toban_cli.output import show_data
from toban_cli.ports import CALL_SECONDS
from toban_cli.sanitize import clean
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toban_manifests.read import Manifest

IgnoreMissing = Annotated[bool, typer.Option("--ignore-missing", help="What is not there is named, and is no error.")]
# What uses a job goes before the job.
_ORDER = ("trigger", "schedule", "job")
_MISSING = frozenset({ErrorCode.JOB_NOT_FOUND, ErrorCode.SCHEDULE_NOT_FOUND, ErrorCode.TRIGGER_NOT_FOUND})
_SHOWN = 10


def delete(
    file: Files = None,
    files: SomeFiles = None,
    with_schedules: WithSchedules = False,
    with_triggers: WithTriggers = False,
    cancel_runs: CancelRuns = False,
    ignore_missing: IgnoreMissing = False,
    yes: Yes = False,
    reason: AuditReason = "",
    output: Output = Format.TABLE,
) -> None:
    """Delete the jobs, schedules and triggers that files name: triggers first, then schedules, then jobs.

    It asks first on a terminal, and needs --yes elsewhere. The first error ends it; what was deleted before stays deleted, and is printed. The
    audit log keeps no reason for the deletion of a trigger. The other options are those of `toban job delete`.

    Examples:
    toban delete -f job.yaml
    toban delete jobs/ --yes --ignore-missing --reason "moved to another cluster"
    """
    _, manifests = checked_files(file, files)
    ordered = sorted(manifests, key=lambda one: _ORDER.index(noun_of(one)))
    if not yes:
        confirm(f"Delete {_named(ordered)}?", "this")
    extra = {"with_schedules": with_schedules, "with_triggers": with_triggers, "cancel_runs": cancel_runs}
    rows: list[dict[str, str]] = []
    try:
        with connect() as client:
            for one in ordered:
                lines = _delete_one(client, noun_of(one), one.name, extra, reason)
                action = "deleted" if lines else "missing"
                rows.append({"kind": one.kind, "name": one.name, "action": action})
                _show_one(one, lines, output, reason)
    finally:
        # Also after an error: what is deleted stays deleted. A command that deleted nothing has its error alone.
        if output.is_data and rows:
            show_data(output, rows)
    missing = [row for row in rows if row["action"] == "missing"]
    if missing and not ignore_missing:
        message = f"{len(missing)} of {len(rows)} are not there; --ignore-missing takes that as deleted"
        raise TobanError(ErrorCode.NOT_FOUND, message)


def _show_one(one: Manifest, lines: Sequence[str], output: Format, reason: str) -> None:
    noun = noun_of(one)
    if not lines:
        report.note(clean(f"{noun} {one.name} is not there"))
        return
    if output is Format.NAME:
        report.echo(clean(f"{noun}/{one.name}"))
    elif not output.is_data:
        for line in lines:
            report.echo(clean(line))
    if reason and noun == "trigger":
        report.note(clean(f"note: no reason is kept for trigger {one.name}"))


def _delete_one(client: Any, noun: str, name: str, extra: dict[str, bool], reason: str) -> list[str]:
    """The lines that tell it; none when there is no such thing."""
    request: Any
    if noun == "job":
        request = pb.DeleteJobRequest(name=name, reason=reason, **extra)
    elif noun == "schedule":
        request = pb.DeleteScheduleRequest(name=name, reason=reason)
    else:
        request = pb.DeleteTriggerRequest(name=name)
    try:
        timeout = DELETE_SECONDS if noun == "job" else CALL_SECONDS
        done = client.call(f"JobControl.Delete{noun.capitalize()}", request, timeout=timeout)
    except TobanError as error:
        if error.code in _MISSING:
            return []
        raise
    return deletion_lines(name, done) if noun == "job" else [f"{noun} {name} deleted"]


def _named(ordered: Sequence[Manifest]) -> str:
    """All that goes, or the first of it with a number."""
    names = [f"{noun_of(one)} {one.name}" for one in ordered]
    rest = len(names) - _SHOWN
    return clean(", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else ""))
