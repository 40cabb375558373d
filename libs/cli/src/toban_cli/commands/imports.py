"""`toban import crontab`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toban_cli import report
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from toban_cli.crontab.convert import Imported

_MAX_BYTES = 4 * 1024 * 1024
APPLY_SECONDS = 60.0
# Some job of the crontab could not be carried over; the rest was.
EXIT_INCOMPLETE = 65
# Of the server, for one call.
_APPLY_AT_ONCE = 2000

CrontabFile = Annotated[str, typer.Argument(metavar="FILE", help="A crontab, or - for stdin.", show_default=False)]
System = Annotated[
    bool | None,
    typer.Option("--system/--user", help="Whether there is a column for the account (found out when not given)."),
]
Zone = Annotated[str, typer.Option("--timezone", help="Zone of the times without CRON_TZ (default: this machine's).")]
Prefix = Annotated[str, typer.Option("--name-prefix", help="Put before each name, such as web1-.")]
Out = Annotated[str, typer.Option("--out", help="Write the YAML to this file instead of stdout.")]
Apply = Annotated[bool, typer.Option("--apply", help="Apply the jobs and schedules at once instead of printing them.")]


def crontab(
    file: CrontabFile,
    system: System = None,
    timezone: Zone = "",
    name_prefix: Prefix = "",
    out: Out = "",
    apply: Apply = False,
) -> int:
    """Turn a crontab into YAML on stdout, and say on stderr what became of each line.

    Exit code 65: a line with a command could not be carried over (the others were).

    Examples:
    toban import crontab /etc/crontab --out jobs.yaml
    crontab -l | toban import crontab - --apply
    """
    from toban_cli.crontab.convert import Options, convert
    from toban_cli.crontab.report import report_lines, yaml_text

    content = _content(file)
    source = "stdin" if file == "-" else file
    _check_prefix(name_prefix)
    zone, zone_note = _zone(timezone)
    options = Options(source=source, system=system, timezone=zone, prefix=name_prefix, accounts=_accounts())
    done = convert(content, options)
    for line in report_lines(done, source=source, zone=zone_note):
        report.note(line)
    text = yaml_text(done)
    if out:
        _write(Path(out), text)
    elif not apply and text:
        report.say(text.rstrip("\n"))
    if apply:
        _apply(done, source)
    return EXIT_INCOMPLETE if done.lost else 0


def _content(name: str) -> bytes:
    try:
        if name == "-":
            content = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as opened:
                content = opened.read(_MAX_BYTES + 1)
    except OSError as error:
        raise TobanError(
            ErrorCode.NOT_FOUND, f"{name} cannot be read ({error.strerror}); give a crontab, or - and `crontab -l |`"
        ) from None
    if len(content) > _MAX_BYTES:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{name} is larger than {_MAX_BYTES} bytes; split it")
    return content


def _check_prefix(prefix: str) -> None:
    from toban_domain.manifest.fields import NAME

    if prefix and (len(prefix) > 60 or not NAME.fullmatch(f"{prefix}x")):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"--name-prefix is {prefix!r}; use at most 60 of a-z, 0-9, '.', '_', '-', beginning with a letter or digit",
        )


def _zone(wanted: str) -> tuple[str, str]:
    """The zone of the schedules, and the sentence about it; raises SCHEDULE_INVALID for a zone that is none."""
    from toban_schedule.spec import ScheduleError
    from toban_schedule.zones import load_zone

    name, why = (wanted, "by --timezone") if wanted else _local_zone()
    try:
        load_zone(name)
    except ScheduleError as error:
        if wanted:
            raise TobanError(ErrorCode.SCHEDULE_INVALID, f"--timezone: {error.message}; {error.hint}") from None
        name, why = "UTC", f"since this machine's {name!r} is no IANA name"
    return name, f"times without CRON_TZ are local times of {name} ({why}); --timezone names another zone"


def _local_zone() -> tuple[str, str]:
    if given := os.environ.get("TZ", "").removeprefix(":"):
        return given, "from TZ of this shell"
    localtime = Path("/etc/localtime")
    _, found, name = (os.fspath(localtime.resolve()) if localtime.is_symlink() else "").partition("/zoneinfo/")
    if found:
        return {"Etc/UTC": "UTC"}.get(name, name), "this machine's, from /etc/localtime"
    return "UTC", "this machine names no zone"


def _accounts() -> frozenset[str]:
    import pwd

    return frozenset(entry.pw_name for entry in pwd.getpwall())


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"--out {path} cannot be written ({error.strerror}); name another file"
        ) from None
    report.note(f"written to {path}; apply it with `toban apply -f {path}`")


def _apply(done: Imported, source: str) -> None:
    """All documents in calls of bounded size; each job goes with its schedule. Applying again changes nothing."""
    import json

    from toban_cli.client import connect
    from toban_proto.v1.coordinator_pb2 import ApplyRequest, Manifest

    manifests = [
        Manifest(json=json.dumps(document), source=f"{source}, line {entry.line.number}")
        for entry in done.entries
        for document in entry.documents
    ]
    with connect() as client:
        while manifests:
            batch, manifests = manifests[:_APPLY_AT_ONCE], manifests[_APPLY_AT_ONCE:]
            # A schedule may not be parted from its job: jobs come first within each pair.
            if manifests and json.loads(manifests[0].json)["kind"] == "Schedule":
                batch, manifests = [*batch, manifests[0]], manifests[1:]
            answer = client.control("Apply", ApplyRequest(manifests=batch), timeout=APPLY_SECONDS)
            for item in answer.applied:
                report.say(f"{item.kind.lower()} {item.name} {item.action}")
