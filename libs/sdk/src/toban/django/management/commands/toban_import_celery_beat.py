"""manage.py toban_import_celery_beat [--database ALIAS]"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from toban.django import celery_beat
from toban.django.management.commands.toban_celery_task import registered_tasks

_TABLE = "django_celery_beat_"
_RULES = {
    "crontab": "crontabschedule",
    "interval": "intervalschedule",
    "clocked": "clockedschedule",
    "solar": "solarschedule",
}
_TIMES = ("clocked_time", "expires", "start_time")
EXIT_INCOMPLETE = 65


class Command(BaseCommand):
    """Writes the periodic tasks of django-celery-beat as declarations; reads its tables, and changes nothing."""

    help = (
        "Prints a module toban_jobs with a command_job for each periodic task of django-celery-beat, and a report on stderr. "
        "Exit code 65: some row, or its time, could not be carried over; all other rows were."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument(
            "--database", default=DEFAULT_DB_ALIAS, choices=tuple(connections), help="where the tables are"
        )

    def handle(self, *, database: str, **_: Any) -> None:
        """Print the module, and on stderr a line for each row."""
        rows = list(_rows(database))
        tasks = registered_tasks()
        imported = celery_beat.convert(rows, timezone.now(), tasks)
        self.stdout.write(celery_beat.module_text(imported))
        for one in imported:
            for line in one.lines:
                self.stderr.write(line, self.style.WARNING if one.lost else str)
        for line in celery_beat.ALL_ROWS:
            self.stderr.write(f"all rows: {line}")
        if tasks is None:
            self.stderr.write("Celery is not installed here, so the names of tasks were not checked")
        declared, lost = (
            sum(map(bool, found)) for found in ([one.arguments for one in imported], [one.lost for one in imported])
        )
        self.stderr.write(
            f"{len(rows)} rows: {declared} jobs; stop `celery beat` before you apply them with toban_sync"
        )
        if lost:
            raise CommandError(
                f"{lost} rows could not be carried over as they are; see the lines above", returncode=EXIT_INCOMPLETE
            )


def _rows(database: str) -> Iterator[Mapping[str, Any]]:
    """Periodic tasks with their rules, by id. Raises CommandError without the tables."""
    tables = connections[database].introspection.table_names()
    if f"{_TABLE}periodictask" not in tables:
        raise CommandError(
            f"the database {database!r} has no table {_TABLE}periodictask, so django-celery-beat has no schedules there; "
            "--database names another one"
        )
    # Older versions lack some tables.
    rules = {
        kind: {row["id"]: row for row in _table(database, name)} if f"{_TABLE}{name}" in tables else {}
        for kind, name in _RULES.items()
    }
    for row in _table(database, "periodictask"):
        yield {**row, **{kind: rules[kind].get(row.get(f"{kind}_id")) for kind in _RULES}}


def _table(database: str, name: str) -> list[dict[str, Any]]:
    """All rows: the columns depend on the version of django-celery-beat."""
    connection = connections[database]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {connection.ops.quote_name(_TABLE + name)} ORDER BY id")  # noqa: S608 (names of this module)
        columns = [column[0] for column in cursor.description]
        found = [dict(zip(columns, values, strict=True)) for values in cursor.fetchall()]
    for row in found:
        row.update({key: _time(row[key], database) for key in _TIMES if row.get(key)})
    return found


def _time(value: Any, database: str) -> datetime:
    """With a zone; SQLite has text, and databases without zones have that of the connection."""
    found = parse_datetime(value) if isinstance(value, str) else value
    if not isinstance(found, datetime):
        raise CommandError(f"{value!r} in the tables of django-celery-beat is no time")
    zone = connections[database].timezone or timezone.get_default_timezone()
    return found if timezone.is_aware(found) else timezone.make_aware(found, zone)
