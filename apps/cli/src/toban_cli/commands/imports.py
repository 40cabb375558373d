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
    read_file,
    zone_of,
)

if TYPE_CHECKING:
    from toban_cli.importers.result import Options

Units = Annotated[
    list[str],
    typer.Argument(metavar="FILE|FOLDER...", help="Unit files, or folders that have them.", show_default=False),
]
CronJobs = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="YAML files with CronJobs, or - for stdin.", show_default=False)
]
LocalZone = Annotated[
    str, typer.Option("--timezone", help="Zone of the times that name none (default: this machine's).")
]
Zone = Annotated[str, typer.Option("--timezone", help="Zone of the times that name none.")]
Replace = Annotated[
    bool, typer.Option("--replace", help="With --apply: also change jobs and schedules that are not from these files.")
]


def systemd(
    files: Units,
    timezone: LocalZone = "",
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

    options = _options(name_prefix, timezone, "times without a zone in OnCalendar=")
    done = convert(load_units(files), options)
    return deliver(done, Output(out=out, force=force, apply=apply, replace=replace), kind="systemd")


def kubernetes(
    files: CronJobs,
    timezone: Zone = "UTC",
    name_prefix: Prefix = "",
    out: Out = "",
    force: Force = False,
    apply: Apply = False,
    replace: Replace = False,
) -> int:
    """Convert CronJobs of Kubernetes into YAML on stdout; report the result of each document on stderr.

    Exit code 65: a CronJob, or a part of it, could not be carried over; all others were. With --apply, jobs and schedules that are not
    from these files are never changed: exit code 73 names those in the way.

    Examples:
    toban import kubernetes cronjobs.yaml --out jobs.yaml
    kubectl get cronjobs -o yaml | toban import kubernetes - --apply
    """
    from toban_cli.importers.kubernetes import convert
    from toban_manifests.yaml_text import parse_yaml

    options = _options(name_prefix, timezone, "times without a timeZone")
    remedy = "give YAML files, or use `kubectl get cronjobs -o yaml | toban import kubernetes -`"
    documents = [
        (str(number), name, body)
        for name in files
        for number, body in enumerate(parse_yaml(name, read_file(name, remedy)), start=1)
    ]
    done = convert(documents, options)
    return deliver(done, Output(out=out, force=force, apply=apply, replace=replace), kind="kubernetes")


def _options(prefix: str, timezone: str, unlabelled: str) -> Options:
    from toban_cli.importers.result import Options

    check_prefix(prefix)
    zone, note = zone_of(timezone, unlabelled)
    return Options(timezone=zone, zone_note=note, prefix=prefix, label_of=origin_of)
