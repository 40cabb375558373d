"""`toban import crontab`."""

from __future__ import annotations

from typing import Annotated

import typer

from toban_cli import report
from toban_cli.importers.files import (
    Apply,
    Force,
    Out,
    Output,
    Prefix,
    check_prefix,
    check_text,
    deliver,
    origin_of,
    read_file,
    zone_of,
)
from toban_domain.errors import ErrorCode, TobanError

# The time to split a command grows with the square of its length: seconds from here on.
_MAX_LINE_BYTES = 64 * 1024
_MAX_LINES = 10_000
_REMEDY = "give a crontab, or use `crontab -l | toban import crontab -`"

CrontabFile = Annotated[str, typer.Argument(metavar="FILE", help="A crontab, or - for stdin.", show_default=False)]
System = Annotated[
    bool | None,
    typer.Option("--system/--user", help="Whether lines have a column for the account (default: detected)."),
]
Zone = Annotated[str, typer.Option("--timezone", help="Zone of the times without CRON_TZ (default: this machine's).")]
Replace = Annotated[
    bool, typer.Option("--replace", help="With --apply: also change jobs and schedules that are not from this crontab.")
]


def crontab(
    file: CrontabFile,
    system: System = None,
    timezone: Zone = "",
    name_prefix: Prefix = "",
    out: Out = "",
    force: Force = False,
    apply: Apply = False,
    replace: Replace = False,
) -> int:
    """Convert a crontab into YAML on stdout; report the result of each line on stderr.

    Exit code 65: a command, or its time (@reboot), could not be carried over; all other lines were. With --apply, jobs and schedules
    that are not from this crontab are never changed: exit code 73 names those in the way.

    Examples:
    toban import crontab /etc/crontab --out jobs.yaml
    crontab -l | toban import crontab - --apply
    """
    from toban_cli.importers.crontab.convert import Options, convert

    content = read_file(file, _REMEDY)
    source = "stdin" if file == "-" else file
    check_prefix(name_prefix)
    check_text(content, source, _REMEDY)
    _check_lines(content, source)
    if not content.strip():
        report.note(f"{source} is empty: there is nothing to import")
        return 0
    zone, zone_note = zone_of(timezone, "times without CRON_TZ")
    options = Options(
        source=source,
        system=system,
        timezone=zone,
        zone_note=zone_note,
        prefix=name_prefix,
        accounts=_accounts(),
        origin=origin_of(file),
    )
    done = convert(content, options)
    return deliver(done, Output(out=out, force=force, apply=apply, replace=replace), kind="crontab")


def _check_lines(content: bytes, source: str) -> None:
    """Raises INVALID_ARGUMENT for more lines, or a longer one, than are converted within seconds."""
    lines = content.removesuffix(b"\n").split(b"\n")
    if len(lines) > _MAX_LINES:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"{source} has {len(lines)} lines, the limit is {_MAX_LINES}: line {_MAX_LINES + 1} and later ones do not fit; split the file",
        )
    for number, line in enumerate(lines, start=1):
        if len(line) > _MAX_LINE_BYTES:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT,
                f"{source}, line {number}: it has {len(line)} bytes, the limit is {_MAX_LINE_BYTES};"
                " put its command into a script and import again",
            )


def _accounts() -> frozenset[str]:
    import pwd

    return frozenset(entry.pw_name for entry in pwd.getpwall())
