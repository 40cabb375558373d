"""`toban archive`: what of the logs is in the database, what in the object store, and a pass or a check now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.options import Format, Output
from toban_cli.output import Column, show, show_one

if TYPE_CHECKING:
    from collections.abc import Iterator

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be archived and deleted.")]
Day = Annotated[str, typer.Option("--day", metavar="YYYY-MM-DD", help="Only this day of dispatch.")]
EXIT_BROKEN = 1


def status(output: Output = Format.TABLE) -> None:
    """What of the logs is where, day by day, and how the last pass went.

    Examples:
    toban archive status
    toban archive status -o json
    """
    from toban_cli.client import connect
    from toban_proto.v1.logs_pb2 import ArchiveStatusRequest

    with connect() as client:
        found = client.archive("Status", ArchiveStatusRequest())
    show_one(output, found, page=lambda wide: _page(found, wide=wide), name=lambda one: one.oldest_not_archived)


def run(dry_run: DryRun = False, output: Output = Format.TABLE) -> int:
    """Archive now what is older than log_retention_days_db, and delete what is older than log_retention_days_archive.

    Exit code 1 when something could not be done.

    Examples:
    toban archive run --dry-run
    toban archive run
    """
    from toban_cli.client import connect
    from toban_proto.v1.logs_pb2 import RunArchiveRequest

    with connect() as client:
        did = client.archive_stream("RunArchive", RunArchiveRequest(dry_run=dry_run))
        heard = _show_stream(output, did, _said, name=lambda one: one.key or one.log_day)
    if not heard and not output.is_data:
        report.say("Nothing is due.")
    return EXIT_BROKEN if any(one.action == "failed" for one in heard) else 0


def verify(day: Day = "", output: Output = Format.TABLE) -> int:
    """Read archived objects again and compare them with what was written down. Exit code 1 on a mismatch.

    Examples:
    toban archive verify
    toban archive verify --day 2026-11-14
    """
    from toban_cli.client import connect
    from toban_proto.v1.logs_pb2 import VerifyArchiveRequest

    with connect() as client:
        found = client.archive_stream("Verify", VerifyArchiveRequest(log_day=day))
        heard = _show_stream(output, found, _checked, name=lambda one: one.key)
    wrong = [one for one in heard if not one.ok]
    if not output.is_data:
        chunks = sum(one.chunks for one in heard)
        said = f"{len(wrong)} of {len(heard)} objects are broken" if wrong else f"{len(heard)} objects are good"
        report.note(f"{said} ({chunks} chunks)")
    return EXIT_BROKEN if wrong else 0


def _show_stream(output: Format, messages: Iterator[Any], line: Any, *, name: Any) -> list[Any]:
    """For people each as it comes; for programs all of them at the end."""
    if output.is_data or output is Format.NAME:
        heard = list(messages)
        show(output, heard, table=(), name=name)
        return heard
    heard = []
    for one in messages:
        report.say(line(one))
        heard.append(one)
    return heard


def _said(did: Any) -> str:
    from toban_cli.formatting import size

    amount = f"{did.tokens} attempts, {did.chunks} chunks, {size(did.bytes)}"
    what = {
        "sealed": f"{did.log_day}  sealed {did.tokens} attempts that will not end their logs themselves",
        "would_archive": f"{did.log_day}  would archive {amount}",
        "archived": f"{did.log_day}  archived {amount}, {did.lines} lines as {did.key}",
        "dropped": f"{did.log_day}  left the database: {amount}",
        "failed": f"{did.log_day or '-'}  failed",
        "would_expire": f"{did.log_day}  would expire: {amount}",
        "expired": f"{did.log_day}  expired, deleted {did.key} ({size(did.bytes)})",
        "forgotten": f"{did.log_day}  is forgotten: nothing of it is left",
    }.get(did.action, f"{did.log_day}  {did.action}")
    return f"{what}: {did.message}" if did.message else what


def _checked(one: Any) -> str:
    from toban_cli.formatting import size

    result = "ok" if one.ok else f"BROKEN: {one.problem}"
    return f"{one.key}  {one.chunks} chunks, {size(one.bytes)}  {result}"


def _page(found: Any, *, wide: bool) -> None:
    from toban_cli.formatting import NOTHING, age, size, to_time
    from toban_cli.tables import facts
    from toban_cli.words import count
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
            ("Bookkeeping", f"{size(found.bookkeeping_bytes)}, not part of the budget"),
            ("Oldest not archived", found.oldest_not_archived or NOTHING),
            ("Works now", found.holder or NOTHING),
            ("Last pass", f"{last}: {found.last_pass}" if found.last_pass else last),
            ("Last error", found.last_error or NOTHING),
        ]
    )
    report.say("")
    show(
        Format.WIDE if wide else Format.TABLE, found.days, table=_columns(), wide=_wide(), empty="No output is stored."
    )


def _kept(found: Any) -> str:
    from toban_cli.words import count

    days = found.archive_retention_days
    # What the database keeps, the archive keeps.
    kept = count(max(days, found.retention_days), "day") if days else "for ever, as far as the bucket keeps it"
    waiting = f"; {count(found.expired_waiting, 'expired object')} still to be deleted" if found.expired_waiting else ""
    return kept + waiting


def _columns() -> list[Column]:
    from toban_cli.formatting import size

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
    from toban_cli.formatting import size

    return [
        Column("ARCHIVED ATTEMPTS", lambda day: str(day.archived_tokens)),
        Column("ARCHIVED BYTES", lambda day: size(day.archived_bytes)),
        Column("EXPIRED", lambda day: f"{size(day.expired_bytes)} in {day.expired_objects}"),
    ]
