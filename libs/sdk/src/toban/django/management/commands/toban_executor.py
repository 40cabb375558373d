"""manage.py toban_executor [drain]"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser


class Command(BaseCommand):
    """Becomes an executor: a fresh interpreter, without Django, so that it has no database connection and no fork beside gRPC."""

    help = "Replaces this process by an executor with this project's interpreter. Its settings are the variables SCHEDULER_..."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The executor's own commands."""
        parser.add_argument("command", nargs="?", choices=["drain"], help="drain: no new work, and wait for its jobs")

    def handle(self, *, command: str | None, **_: Any) -> None:
        """Return never. Raise CommandError without the package."""
        if importlib.util.find_spec("toban_executor") is None:
            raise CommandError(
                f"{sys.executable} has no package toban_executor; install its wheel, of the version of your cluster (docs/django.md)"
            )
        # The settings belong to the steps, which name their own.
        environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(
            sys.executable, [sys.executable, "-m", "toban_executor", *([command] if command else [])], environment
        )
