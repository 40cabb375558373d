"""manage.py toban_celery_task TASK [--task-args JSON] [--task-kwargs JSON]"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
import sys
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from toban.job import JobError, current_job


class Command(BaseCommand):
    """Runs a Celery task as the work of this process: without a broker, a worker or a message."""

    help = "Runs a task of this project's Celery app in this process. What it returns is the result of the run."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The task, and what it is called with."""
        parser.add_argument("task", help="its name, such as shop.tasks.send_reminders")
        parser.add_argument("--task-args", default="[]", metavar="JSON", help="its positional arguments")
        parser.add_argument("--task-kwargs", default="{}", metavar="JSON", help="its keyword arguments")

    def handle(self, *, task: str, task_args: str, task_kwargs: str, **_: Any) -> None:
        """Print what the task returns. Raise what the task raises, and CommandError for a task that is not there."""
        arguments = json_value("--task-args", task_args, list)
        keywords = json_value("--task-kwargs", task_kwargs, dict)
        tasks = registered_tasks()
        if tasks is None:
            raise CommandError(f"{sys.executable} has no Celery; install it, or choose another interpreter")
        if task not in tasks:
            near = difflib.get_close_matches(task, tasks, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else "its module must be imported by the Celery app"
            raise CommandError(f"the Celery app has no task {task!r}; {remedy}")
        # Else a retry is raised, and not carried out.
        tasks[task].app.conf.task_eager_propagates = False
        value = tasks[task].apply(args=arguments, kwargs=keywords, throw=False).get()
        if value is not None:
            self._give(value)

    def _give(self, value: Any) -> None:
        """The task has done its work, so a value that cannot be the result is no failure."""
        try:
            self.stdout.write(json.dumps(value, allow_nan=False, ensure_ascii=False))
            current_job().output(value)
        except (TypeError, ValueError, JobError) as error:
            self.stderr.write(f"toban: the value that the task returned is not the result of the run: {error}")


def registered_tasks() -> Mapping[str, Any] | None:
    """The tasks of the Celery app of this project by name; None without Celery."""
    if importlib.util.find_spec("celery") is None:
        return None
    # The app is made where the project imports it.
    current_app = importlib.import_module("celery").current_app
    current_app.loader.import_default_modules()
    tasks: Mapping[str, Any] = current_app.tasks
    return tasks


def json_value(option: str, text: str, kind: type) -> Any:
    """The value of an option that is JSON of this kind. Raises CommandError."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CommandError(f"{option} is no JSON: {error}") from None
    if not isinstance(value, kind):
        raise CommandError(f"{option} must be a JSON {'list' if kind is list else 'object'}")
    return value
