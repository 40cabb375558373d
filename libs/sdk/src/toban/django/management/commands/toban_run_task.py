"""manage.py toban_run_task TASK [--task-args JSON] [--task-kwargs JSON]"""

from __future__ import annotations

import json
import socket
import sys
import traceback
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules

from toban.django.management.commands.toban_celery_task import json_value
from toban.django.tasks import NotATaskError, TobanBackend, api, as_enqueued, set_fields, signals
from toban.job import JobError, current_job

# Of a traceback as JSON: a result has at most 32 KiB.
_TRACEBACK_BYTES = 24_000
_TIMES = ("run-after", "enqueued-at")


class Command(BaseCommand):
    """Runs a task of Django as the work of this process. TobanBackend starts it, with what was enqueued as its options."""

    help = "Runs a task of Django in this process. What it returns is the result of the run."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The task, what it is called with, and how it was enqueued."""
        # The parser of a warm step is made before the fork, and so are these imports.
        autodiscover_modules("tasks")
        parser.add_argument("task", help="its path, such as shop.tasks.send")
        parser.add_argument("--task-args", default="[]", metavar="JSON", help="its positional arguments")
        parser.add_argument("--task-kwargs", default="{}", metavar="JSON", help="its keyword arguments")
        parser.add_argument("--task-id", default="", help="the id of its result")
        parser.add_argument("--backend", default="", help="the name of its backend in TASKS")
        parser.add_argument("--queue", default="", help="the queue that it was put into")
        parser.add_argument("--priority", type=int, default=0, help="the priority that it was enqueued with")
        for name in _TIMES:
            parser.add_argument(f"--{name}", default="", metavar="TIME", help="a time in ISO format")

    def handle(self, *, task_id: str, task_args: str, task_kwargs: str, **given: Any) -> None:
        """Raise CommandError for what is no task; end with the exit code 1 when the task raises, its traceback on stderr."""
        json_value("--task-args", task_args, list)
        kwargs = json_value("--task-kwargs", task_kwargs, dict)
        try:
            result = as_enqueued({**given, "task_args": task_args, "task_kwargs": kwargs}, task_id)
        except NotATaskError as error:
            raise CommandError(str(error)) from None
        code = run(result)
        if code:
            sys.exit(code)


def run(result: Any) -> int:
    """Calls the task of a result, and sets the result of the run. The exit code: 0, or that of SystemExit, or 1 when the task raises."""
    status, now = api.TaskResultStatus, timezone.now()
    set_fields(result, status=status.RUNNING, started_at=now, last_attempted_at=now)
    job = current_job()
    result.worker_ids.extend([socket.gethostname()] * (job.attempt if job.is_managed else 1))
    signals.task_started.send(TobanBackend, task_result=result)
    context = [api.TaskContext(task_result=result)] if result.task.takes_context else []
    try:
        value = api.normalize_json(result.task.call(*context, *result.args, **result.kwargs))
        job.output(value)
    except BaseException as error:
        _fail(result, error)
        # The receivers of the signal find the exception as the one that is handled.
        signals.task_finished.send(TobanBackend, task_result=result)
        return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code else 1
    set_fields(result, status=status.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)
    signals.task_finished.send(TobanBackend, task_result=result)
    return 0


def _fail(result: Any, error: BaseException) -> None:
    text = "".join(traceback.format_exception(error))
    sys.stdout.flush()
    sys.stderr.write(text)
    while len(json.dumps(text)) > _TRACEBACK_BYTES:
        text = f"[…]{text[len(text) // 4 + 4 :]}"
    path = f"{type(error).__module__}.{type(error).__qualname__}"
    result.errors.append(api.TaskError(exception_class_path=path, traceback=text))
    set_fields(result, status=api.TaskResultStatus.FAILED, finished_at=timezone.now())
    try:
        current_job().output({"exception_class_path": path, "traceback": text})
    except JobError as refused:
        sys.stderr.write(f"toban: the exception is not the result of the run: {refused}\n")
