"""manage.py toban_sync [--dry-run] [--prune]"""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.module_loading import autodiscover_modules

from toban.django import conf, sync
from toban.django.declarations import Place, declared
from toban.errors import TobanError


class Command(BaseCommand):
    """Applies what the modules `toban_jobs` of the installed apps declare."""

    help = (
        "Applies the jobs and schedules that the modules toban_jobs of the installed apps declare, all of them or none."
    )
    requires_system_checks = ["toban"]

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("--dry-run", action="store_true", help="print what would change, and change nothing")
        parser.add_argument("--prune", action="store_true", help="pause schedules that are declared no more")
        parser.add_argument("--interpreter", default=sys.executable, help="the Python of this project on the executors")

    def handle(self, *, dry_run: bool, prune: bool, interpreter: str, **_: Any) -> None:
        """Print each change with its differences."""
        autodiscover_modules("toban_jobs")
        place = Place(
            folder=str(conf.project_dir()),
            interpreter=interpreter,
            settings=conf.settings_module(),
            project=conf.project_name(),
        )
        manifests = [manifest for one in declared() for manifest in one.manifests(place)]
        try:
            found = sync.plan(conf.client(), manifests, place.project)
            self._show(found, dry_run=dry_run, prune=prune)
            if not dry_run:
                sync.carry_out(conf.client(), manifests, found, prune=prune)
        except TobanError as error:
            raise CommandError(str(error)) from None

    def _show(self, found: sync.Plan, *, dry_run: bool, prune: bool) -> None:
        would = "would be " if dry_run else ""
        for one in found.changes:
            kept = one.action == "unchanged"
            self.stdout.write(f"{one.kind} {one.name}: {one.action if kept else would + one.action}")
            for line in found.diffs.get((one.kind, one.name), ()):
                self.stdout.write(f"  {line}")
        for name in found.resumed:
            self.stdout.write(f"Schedule {name}: {would}resumed, it is declared again")
        for name in found.orphans:
            self.stdout.write(
                f"Schedule {name}: {would}paused, it is declared no more"
                if prune
                else f"Schedule {name}: is declared no more and stays active; --prune pauses it"
            )
        if found.is_empty and not found.orphans:
            self.stdout.write(
                "nothing to change" if found.changes else "no app has a module toban_jobs with a command_job"
            )
