"""`toban import systemd`, `kubernetes`, `celery-beat` and `airflow`."""

from __future__ import annotations

import os
from pathlib import Path
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
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from toban_cli.importers.result import Options

Units = Annotated[
    list[str],
    typer.Argument(metavar="FILE|FOLDER...", help="Unit files, or folders that have them.", show_default=False),
]
CronJobs = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="YAML files with CronJobs, or - for stdin.", show_default=False)
]
BeatFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="A Python file with a beat_schedule, JSON, or - for stdin.", show_default=False
    ),
]
DagFiles = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="DAG files, or - for stdin.", show_default=False)
]
Interpreter = Annotated[
    str, typer.Option("--interpreter", help="The Python of python steps, of an environment with your packages.")
]
PythonPath = Annotated[
    list[str] | None, typer.Option("--python-path", help="Folder with modules of python steps; may be repeated.")
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
    units, left_out = load_units(files)
    done = convert(units, options, left_out)
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
        (str(number) if len(files) == 1 else f"{number} of {name}", name, body)
        for name in files
        for number, body in enumerate(parse_yaml(name, read_file(name, remedy)), start=1)
    ]
    done = convert(documents, options)
    return deliver(done, Output(out=out, force=force, apply=apply, replace=replace), kind="kubernetes")


def celery_beat(
    file: BeatFile,
    interpreter: Interpreter = "",
    python_path: PythonPath = None,
    timezone: Zone = "UTC",
    name_prefix: Prefix = "",
    out: Out = "",
    force: Force = False,
    apply: Apply = False,
    replace: Replace = False,
) -> int:
    """Convert a schedule of celery beat into YAML on stdout; report the result of each task on stderr.

    Reads a Python file without executing it, JSON of the same form, or a dump of django-celery-beat. Exit code 65: a task, its time, or
    its arguments could not be carried over; all others were. With --apply, jobs and schedules that are not from this file are never
    changed: exit code 73 names those in the way.

    Examples:
    toban import celery-beat shop/celery.py --interpreter /srv/shop/.venv/bin/python --python-path /srv/shop
    python manage.py dumpdata django_celery_beat | toban import celery-beat - --out jobs.yaml
    """
    from toban_cli.importers.celery_beat import convert
    from toban_cli.importers.python_source import Unreadable

    options = _options(name_prefix, timezone, "times without a zone", interpreter, python_path)
    remedy = "give a Python file with a beat_schedule, or a JSON file"
    content = read_file(file, remedy)
    try:
        done = convert(content, file, options)
    except Unreadable as error:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{file}: {error}; {remedy}") from None
    return deliver(done, Output(out=out, force=force, apply=apply, replace=replace), kind="celery-beat")


def airflow(
    files: DagFiles,
    interpreter: Interpreter = "",
    python_path: PythonPath = None,
    timezone: Zone = "UTC",
    name_prefix: Prefix = "",
    out: Out = "",
    force: Force = False,
    apply: Apply = False,
    replace: Replace = False,
) -> int:
    """Convert DAGs of Airflow into YAML on stdout; report the result of each DAG on stderr.

    Reads the files without executing them. Exit code 65: a DAG, its time, or a task of it could not be carried over; all others were.
    With --apply, jobs and schedules that are not from these files are never changed: exit code 73 names those in the way.

    Examples:
    toban import airflow dags/*.py --interpreter /srv/etl/.venv/bin/python --out jobs.yaml
    """
    from toban_cli.importers.airflow.convert import convert

    options = _options(name_prefix, timezone, "times of DAGs whose start_date has no zone", interpreter, python_path)
    done = convert([(name, read_file(name, "give DAG files of Airflow")) for name in files], options)
    return deliver(done, Output(out=out, force=force, apply=apply, replace=replace), kind="airflow")


def _options(
    prefix: str, timezone: str, unlabelled: str, interpreter: str = "", python_path: list[str] | None = None
) -> Options:
    from toban_cli.importers.result import Options

    check_prefix(prefix)
    zone, note = zone_of(timezone, unlabelled)
    return Options(
        timezone=zone,
        zone_note=note,
        prefix=prefix,
        label_of=origin_of,
        # The links of an environment's Python are part of its meaning.
        interpreter=os.fspath(Path(interpreter).absolute()) if interpreter else "",
        python_path=tuple(os.fspath(Path(folder).absolute()) for folder in python_path or ()),
    )
