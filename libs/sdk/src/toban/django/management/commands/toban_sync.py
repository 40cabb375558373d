"""manage.py toban_sync [--dry-run] [--prune] [--take-over] [--interpreter FILE] [--project-dir FOLDER]"""

from __future__ import annotations

import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from toban.declaring import sync
from toban.declaring.model import DeclarationError, Place, declared
from toban.django import checks, conf
from toban.errors import TobanError

_REMEDY = {
    "folder": "--project-dir or TOBAN['PROJECT_DIR']",
    "interpreter": "--interpreter or TOBAN['INTERPRETER']",
}


class Command(BaseCommand):
    """Applies what the modules `toban_jobs` of the installed apps declare, and the queues of TASKS."""

    help = (
        "Applies the jobs, schedules and triggers that the modules toban_jobs of the installed apps declare, and a job for each queue of "
        "tasks, all of them or none. "
        "Jobs on the site keep their interpreter and folder, unless these are named by an option or in the setting TOBAN."
    )
    # `handle` checks more of it, also for call_command.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("--dry-run", action="store_true", help="print what would change, and change nothing")
        parser.add_argument(
            "--prune", action="store_true", help="end schedules and triggers that are no longer declared"
        )
        parser.add_argument(
            "--take-over",
            action="store_true",
            help="also change jobs, schedules and triggers that have these names and are not of this project",
        )
        parser.add_argument("--interpreter", default="", help="the Python of this project on the executors")
        parser.add_argument("--project-dir", default="", help="the folder of manage.py on the executors")

    def handle(
        self, *, dry_run: bool, prune: bool, take_over: bool, interpreter: str, project_dir: str, **_: Any
    ) -> None:
        """Print each change with its differences."""
        try:
            if wrong := [*checks.mistakes(), *checks.queue_mistakes()]:
                raise CommandError("\n".join(wrong))
            place, named = _place(interpreter, project_dir)
            found = sync.plan(conf.client(), declared(), place, named, take_over=take_over)
            for line in sync.lines(found, place, _REMEDY, dry_run=dry_run, prune=prune):
                self.stdout.write(line)
            if found.is_empty and not (found.changes or found.orphans or found.orphan_triggers):
                self.stdout.write(
                    "no app of INSTALLED_APPS has a module toban_jobs with a command_job, and TASKS has no TobanBackend"
                )
            if not dry_run:
                sync.carry_out(conf.client(), found, prune=prune)
        except (TobanError, DeclarationError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from None


def _place(interpreter: str, project_dir: str) -> tuple[Place, set[str]]:
    """Where the commands are as seen from here, and which fields a person has named. Raises ImproperlyConfigured."""
    given = conf.options()
    conf.check_path("--project-dir", project_dir)
    conf.check_path("--interpreter", interpreter)
    named = {
        "folder": str(project_dir or given.get("PROJECT_DIR") or ""),
        "interpreter": str(interpreter or given.get("INTERPRETER") or ""),
    }
    place = Place(
        folder=named["folder"] or str(conf.program_dir()),
        interpreter=named["interpreter"] or sys.executable,
        settings=conf.settings_module(),
        project=conf.project_name(),
        job=given.get("JOB", {}),
    )
    return place, {name for name, value in named.items() if value}
