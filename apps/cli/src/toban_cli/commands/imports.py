"""`toban import systemd`, `kubernetes`, `celery-beat` and `airflow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toban_cli.importers.files import (
    Apply,
    Force,
    Out,
    Output,
    Prefix,
    check_prefix,
    deliver,
    origin_of,
    zone_of,
)

if TYPE_CHECKING:
    from toban_cli.importers.result import Options

Units = Annotated[
    list[str],
    typer.Argument(metavar="FILE|FOLDER...", help="Unit files, or folders that have them.", show_default=False),
]
Zone = Annotated[str, typer.Option("--timezone", help="Zone of the times that name none (default: this machine's).")]
Replace = Annotated[
    bool, typer.Option("--replace", help="With --apply: also change jobs and schedules that are not from these files.")
]


def systemd(
    files: Units,
    timezone: Zone = "",
    name_prefix: Prefix = "",
    out: Out = "",
    force: Force = False,
    apply: Apply = False,
    replace: Replace = False,
) -> int:
    """Convert timers of systemd and their services into YAML on stdout; report the result of each timer on stderr.

    Exit code 65: a timer, its time, or a part of its service could not be carried over; all other timers were. With --apply, jobs and
    schedules that are not from these files are never changed: exit code 73 names those in the way.

    Examples:
    toban import systemd /etc/systemd/system --out jobs.yaml
    toban import systemd backup.timer backup.service --apply
    """
    from toban_cli.importers.systemd.convert import convert
    from toban_cli.importers.systemd.load import load_units

    options = _options(name_prefix, timezone, "", "times without a zone in OnCalendar=")
    done = convert(load_units(files), options)
    return deliver(done, Output(out=out, force=force, apply=apply, replace=replace), kind="systemd")


def _options(prefix: str, timezone: str, default: str, unlabelled: str) -> Options:
    from toban_cli.importers.result import Options

    check_prefix(prefix)
    zone, note = zone_of(timezone, default, unlabelled)
    return Options(timezone=zone, zone_note=note, prefix=prefix, label_of=origin_of)
