"""`toban archive`: logs in the database and in the object store; an archive pass or a check on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import call, connect
from toban_cli.formatting import NOTHING, age, count, size, to_time
from toban_cli.messages import logs_pb
from toban_cli.options import Format, Output
from toban_cli.output import Column, show, show_one

if TYPE_CHECKING:
    from collections.abc import Iterator

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be archived and deleted; change nothing.")]
Day = Annotated[str, typer.Option("--day", metavar="YYYY-MM-DD", help="Only this day of dispatch.")]
# Whole days are counted for the status.
STATUS_SECONDS = 60.0
EXIT_BROKEN = 1


def status(output: Output = Format.TABLE) -> None:
    """Where the logs of each day are stored, and the result of the last archive pass.

    Examples:
    toban archive status
    toban archive status -o json
    """
    found = call("LogArchive.Status", logs_pb.ArchiveStatusRequest(), timeout=STATUS_SECONDS)
    show_one(output, found, page=lambda wide: _page(found, wide=wide), name=lambda one: one.oldest_not_archived)


def run(dry_run: DryRun = False, output: Output = Format.TABLE) -> int:
    """Archive logs older than log_retention_days_db now, and delete those older than log_retention_days_archive.

    Exit code 1 when a step failed.

    Examples:
    toban archive run --dry-run
    toban archive run
    """
    with connect() as client:
        did = client.stream("LogArchive.RunArchive", logs_pb.RunArchiveRequest(dry_run=dry_run))
        shown = _show_stream(output, did, _format_step, name=lambda one: one.key or one.log_day)
    if not shown and not output.is_data:
        report.echo("Nothing to archive or delete.")
    return EXIT_BROKEN if any(one.action == "failed" for one in shown) else 0


def verify(day: Day = "", output: Output = Format.TABLE) -> int:
    """Read archived objects and compare them with their records in the database. Exit code 1 on a mismatch.

    Examples:
    toban archive verify
    toban archive verify --day 2026-11-14
    """
    with connect() as client:
        found = client.stream("LogArchive.Verify", logs_pb.VerifyArchiveRequest(log_day=day))
        shown = _show_stream(output, found, _format_object, name=lambda one: one.key)
    wrong = [one for one in shown if not one.ok]
    if not output.is_data:
        chunks = sum(one.chunks for one in shown)
        summary = f"{len(wrong)} of {len(shown)} objects are broken" if wrong else f"{len(shown)} objects are good"
        report.note(f"{summary} ({chunks} chunks)")
    return EXIT_BROKEN if wrong else 0


def _show_stream(output: Format, messages: Iterator[Any], line: Any, *, name: Any) -> list[Any]:
    """Prints each message as it arrives; as data, all of them at the end."""
    if output.is_data or output is Format.NAME:
        shown = list(messages)
        show(output, shown, table=(), name=name)
        return shown
    shown = []
    for one in messages:
        report.echo(line(one))
        shown.append(one)
    return shown


def _format_step(did: Any) -> str:
    amount = f"{did.tokens} attempts, {did.chunks} chunks, {size(did.bytes)}"
    what = {
        "sealed": f"{did.log_day}  sealed {did.tokens} attempts whose logs were left open",
        "would_archive": f"{did.log_day}  would archive {amount}",
        "archived": f"{did.log_day}  archived {amount}, {did.lines} lines as {did.key}",
        "dropped": f"{did.log_day}  deleted from the database: {amount}",
        "failed": f"{did.log_day or '-'}  failed",
        "would_expire": f"{did.log_day}  would expire: {amount}",
        "expired": f"{did.log_day}  expired, deleted {did.key} ({size(did.bytes)})",
        "forgotten": f"{did.log_day}  removed from the records: no object of it is left",
    }.get(did.action, f"{did.log_day}  {did.action}")
    return f"{what}: {did.message}" if did.message else what


def _format_object(one: Any) -> str:
    result = "ok" if one.ok else f"BROKEN: {one.problem}"
    return f"{one.key}  {one.chunks} chunks, {size(one.bytes)}  {result}"


def _page(found: Any, *, wide: bool) -> None:
    from toban_cli.tables import facts
    from toban_runtime.clock import SystemClock

    now = SystemClock().wall()
    used = found.database_bytes / found.budget_bytes if found.budget_bytes else 0.0
    last = age(found.last_pass_at, now) if to_time(found.last_pass_at) else "never"
    facts(
        [
            ("Archive", found.bucket or "none: output stays in the database"),
            ("Kept in the database", count(found.retention_days, "day")),
            ("Kept in the archive", _kept(found)),
            ("Database", f"{size(found.database_bytes)}, {used:.0%} of {found.budget_bytes / 1e9:g} GB"),
            ("Bookkeeping", f"{size(found.bookkeeping_bytes)}, not counted in the budget"),
            ("Oldest not archived", found.oldest_not_archived or NOTHING),
            ("Running on", found.holder or NOTHING),
            ("Last pass", f"{last}: {found.last_pass}" if found.last_pass else last),
            ("Last error", found.last_error or NOTHING),
        ]
    )
    report.echo("")
    show(
        Format.WIDE if wide else Format.TABLE, found.days, table=_columns(), wide=_wide(), empty="No output is stored."
    )


def _kept(found: Any) -> str:
    days = found.archive_retention_days
    # What the database keeps, the archive keeps.
    kept = count(max(days, found.retention_days), "day") if days else "for ever, as far as the bucket keeps it"
    waiting = f"; {count(found.expired_waiting, 'expired object')} still to be deleted" if found.expired_waiting else ""
    return kept + waiting


def _columns() -> list[Column]:
    return [
        Column("DAY", lambda day: day.log_day),
        Column("DUE", lambda day: "yes" if day.due else "no"),
        Column("ATTEMPTS", lambda day: str(day.tokens)),
        Column("CHUNKS", lambda day: str(day.chunks)),
        Column("BYTES", lambda day: size(day.bytes)),
        Column("NOT ARCHIVED", lambda day: str(day.open_chunks)),
        Column("ARCHIVED", lambda day: f"{day.archived_chunks} in {day.archived_objects}"),
    ]


def _wide() -> list[Column]:
    return [
        Column("ARCHIVED ATTEMPTS", lambda day: str(day.archived_tokens)),
        Column("ARCHIVED BYTES", lambda day: size(day.archived_bytes)),
        Column("EXPIRED", lambda day: f"{size(day.expired_bytes)} in {day.expired_objects}"),
    ]
