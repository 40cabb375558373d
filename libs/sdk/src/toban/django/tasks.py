"""`TobanBackend` for the setting TASKS: tasks of Django 6, or of the package django-tasks on earlier ones, as runs (docs/django.md)."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import Error
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.utils.module_loading import autodiscover_modules, import_string

from toban import events
from toban.client import Event, Run
from toban.declaring import keys
from toban.django import conf
from toban.django.declarations import TASK_COMMAND, CommandDeclaration
from toban.errors import NotFoundError, RunFailedError

# Both have the same interface. Django's own comes first, because its users import from there.
_PACKAGE = next((one for one in ("django.tasks", "django_tasks") if importlib.util.find_spec(one)), "")
if not _PACKAGE:
    raise ImportError("Django before 6.0 has no tasks; install the package django-tasks as well")
_handlers = importlib.import_module(_PACKAGE)
_backends = importlib.import_module(f"{_PACKAGE}.backends.base")
api = importlib.import_module(f"{_PACKAGE}.base")
exceptions = importlib.import_module(f"{_PACKAGE}.exceptions")
signals = importlib.import_module(f"{_PACKAGE}.signals")

OPTIONS = ("DATABASE", "JOB", "QUEUE_JOBS")
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?")
_PREFIX = 8
_RUNNING = frozenset({"RUNNING", "CANCEL_REQUESTED", "ORPHANED"})


class TobanBackend(_backends.BaseTaskBackend):  # type: ignore[name-defined]
    """Each queue is a job, which `manage.py toban_sync` makes, and each task that is enqueued a run of it.

    In a transaction of OPTIONS["DATABASE"] a task is enqueued when the transaction commits, as TOBAN["EMIT"] has it: after the commit
    by REST, or as an event of the same transaction. Outside of one it is enqueued at once.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        if _emits_in_database():
            # An event starts its run at once, with the priority of the job.
            self.supports_defer = self.supports_priority = False

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of one task, which is READY. Raises InvalidTask, and what `enqueue_many` raises."""
        return self.enqueue_many([(task, args, kwargs)])[0]

    def enqueue_many(self, calls: Iterable[tuple[Any, Sequence[Any], Mapping[str, Any]]]) -> list[Any]:
        """The results of several tasks, which are enqueued by one request, all or none: at most 5000, and 2 MiB as JSON.

        Raises InvalidTask, TypeError for what is no JSON, and InvalidRequestError for a task with arguments of more than 32 KiB. What the
        site refuses is a TobanError: at once outside of a transaction, and out of its `atomic` block, whose data stays, within one.
        """
        results = [self._result(*call) for call in calls]
        if not results:
            return results
        connection = connections[self._database]
        if not connection.in_atomic_block:
            self._start(results)
        elif _emits_in_database():
            for result in results:
                self._emit(connection, result)
        else:
            transaction.on_commit(lambda: self._start(results), using=self._database)
        return results

    def get_result(self, result_id: str) -> Any:
        """The result as it is on the site. Raises TaskResultDoesNotExist, also before the transaction has committed, and TobanError."""
        prefix, rest = str(result_id)[:_PREFIX], str(result_id)[_PREFIX:]
        job = next((job for queue, job in self.jobs.items() if _prefix(queue) == prefix), "")
        if not job or not rest:
            raise exceptions.TaskResultDoesNotExist(result_id)
        client = conf.client()
        event = None
        if rest[0] == "-":
            event = _event(job, rest[1:])
            run = client.runs.get(event.run_ids[0]) if event and event.run_ids else None
        else:
            run = next(client.runs.list(job=job, idempotency_key=str(result_id), ahead=True, limit=1), None)
            if run and run.started_at:
                # A list has no attempts.
                run = client.runs.get(run.id)
        if run is None and event is None:
            raise exceptions.TaskResultDoesNotExist(result_id)
        try:
            return _result_of(str(result_id), self.alias, run, event)
        except NotATaskError as error:
            raise exceptions.TaskResultDoesNotExist(f"{result_id}: {error}") from None

    def check(self, **_: Any) -> Iterator[Any]:
        """toban.E003: the options and queues; toban.E004: a task that this backend cannot run."""
        for text, hint in self.mistakes():
            yield Error(text, hint=hint, id="toban.E003")
        where = f"TASKS[{self.alias!r}]"
        try:
            autodiscover_modules("tasks")
        except exceptions.TaskException as error:
            hint = "docs/django.md has what a task may be."
            if _emits_in_database():
                hint = f"With TOBAN['EMIT'] = 'database' tasks have no run_after; a queue has a priority in {where}['OPTIONS']['QUEUE_JOBS']."
            yield Error(f"A module `tasks` has a task that {where} cannot run: {error}", hint=hint, id="toban.E004")

    @property
    def jobs(self) -> dict[str, str]:
        """The job of each queue. Raises ImproperlyConfigured without the name of the project."""
        project = conf.project_name()
        return {queue: f"{project}-tasks-{queue}".lower() for queue in sorted(self.queues)}

    def declarations(self) -> list[CommandDeclaration]:
        """The jobs of the queues, as `command_job` would declare them."""
        by_event = _emits_in_database()
        return [
            CommandDeclaration(
                command=TASK_COMMAND,
                name=job,
                description=f"Tasks of the queue {queue!r}",
                args=(),
                warm=True,
                payload={},
                job=keys.merged(self.options.get("JOB", {}), self.options.get("QUEUE_JOBS", {}).get(queue, {})),
                trigger={"event_type": job, "payload": _of_event(queue)} if by_event else {},
            )
            for queue, job in self.jobs.items()
        ]

    @property
    def _database(self) -> str:
        return str(self.options.get("DATABASE", DEFAULT_DB_ALIAS))

    def _result(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.validate_task(task)
        result_id = _prefix(task.queue_name) + get_random_string(32 - _PREFIX)
        result = new_result(task, result_id, self.alias, args, kwargs, enqueued_at=timezone.now())
        # What the site would refuse later is refused here, where the caller can still do something about it.
        events.checked("task", _payload(result), "")
        return result

    def _start(self, results: Sequence[Any]) -> None:
        now = timezone.now()
        jobs = self.jobs
        runs = []
        for result in results:
            task = result.task
            late = task.run_after is None or task.run_after <= now
            runs.append(
                {
                    "job": jobs[task.queue_name],
                    "payload": _payload(result),
                    "idempotency_key": result.id,
                    "priority": int(task.priority) or None,
                    "scheduled_for": None if late else _aware(task.run_after),
                }
            )
        try:
            conf.client().runs.start_many(runs)
        except NotFoundError as error:
            error.add_note("`manage.py toban_sync` makes a job for each queue of TASKS")
            raise
        self._announce(results)

    def _emit(self, connection: Any, result: Any) -> None:
        queue = result.task.queue_name
        number = events.emit(connection, self.jobs[queue], _payload(result))
        object.__setattr__(result, "id", f"{_prefix(queue)}-{number}")
        self._announce([result])

    def _announce(self, results: Sequence[Any]) -> None:
        for result in results:
            signals.task_enqueued.send(type(self), task_result=result)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """What is wrong in the setting, and a hint for each."""
        where = f"TASKS[{self.alias!r}]"
        if not apps.is_installed("toban.django"):
            hint = f"Add it: the app has the command {TASK_COMMAND}, which runs tasks."
            yield f"{where}: 'toban.django' is not in INSTALLED_APPS.", hint
        if not self.queues:
            yield f"{where} has no queue.", "Name them in QUEUES: each is a job, which toban_sync makes."
        for queue, job in self.jobs.items():
            if not _NAME.fullmatch(job):
                yield f"{where}['QUEUES'] has {queue!r}: its job would be {job!r}.", "Use letters, digits and . _ -"
        if unknown := sorted(set(self.options) - set(OPTIONS)):
            yield f"{where}['OPTIONS'] has {', '.join(unknown)}.", f"Its keys are {', '.join(OPTIONS)}."
        for text, hint in (*self._job_mistakes(), *self._database_mistakes()):
            yield f"{where}['OPTIONS']{text}", hint

    def _job_mistakes(self) -> Iterator[tuple[str, str]]:
        queue_jobs = self.options.get("QUEUE_JOBS", {})
        if not isinstance(queue_jobs, Mapping):
            yield "['QUEUE_JOBS'] is no dict.", "Write {QUEUE: {'timeout_seconds': 60}}."
            queue_jobs = {}
        if unknown := sorted(set(queue_jobs) - self.queues):
            yield f"['QUEUE_JOBS'] has {', '.join(unknown)}.", "Name queues that QUEUES has."
        given = [("['JOB']", self.options.get("JOB", {}))]
        given += [(f"['QUEUE_JOBS'][{queue!r}]", one) for queue, one in queue_jobs.items()]
        for place, one in given:
            if wrong := keys.problem(one, keys.JOB):
                yield f"{place} {wrong}.", "These are keys of a job (docs/manifests.md)."

    def _database_mistakes(self) -> Iterator[tuple[str, str]]:
        if self._database not in connections:
            yield f"['DATABASE'] is {self._database!r}.", f"It is one of {', '.join(connections)}."
        elif _emits_in_database() and (vendor := connections[self._database].vendor) != "postgresql":
            hint = "Use PostgreSQL with the schema of Toban, or TOBAN['EMIT'] = 'rest'."
            yield f"['DATABASE'] is {self._database!r}, which is {vendor}, and TOBAN['EMIT'] is 'database'.", hint


class NotATaskError(LookupError):
    """A path does not name a function that is declared as a task."""


def backends() -> list[TobanBackend]:
    """Those of the setting TASKS that are of this class. Raises InvalidTaskBackend."""
    return [one for one in _handlers.task_backends.all() if isinstance(one, TobanBackend)]


def task_named(path: str) -> Any:
    """The task that is declared at this path, such as shop.tasks.send. Raises NotATaskError, so that nothing else can be called."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise NotATaskError(f"the task {path!r} cannot be imported: {error}") from None
    if not isinstance(found, api.Task):
        raise NotATaskError(f"{path!r} is {type(found).__name__!r} and no task; declare it with @task of {_PACKAGE}")
    return found


def new_result(
    task: Any,
    result_id: str,
    backend: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    enqueued_at: datetime | None,
) -> Any:
    """A result that is READY. Raises TypeError for arguments that are no JSON."""
    return api.TaskResult(
        task=task,
        id=result_id,
        status=api.TaskResultStatus.READY,
        enqueued_at=enqueued_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=backend,
        errors=[],
        worker_ids=[],
    )


def as_enqueued(payload: Mapping[str, Any], result_id: str) -> Any:
    """The result that was enqueued with this payload of a run. Raises NotATaskError."""
    task = task_named(payload["task"])
    changes = {
        "backend": payload.get("backend") or task.backend,
        "queue_name": payload.get("queue") or task.queue_name,
        "priority": int(payload.get("priority") or 0),
        "run_after": _time(payload.get("run_after")),
    }
    args, kwargs = json.loads(payload.get("task_args") or "[]"), payload.get("task_kwargs") or {}
    enqueued_at = _time(payload.get("enqueued_at"))
    return new_result(replace(task, **changes), result_id, changes["backend"], args, kwargs, enqueued_at=enqueued_at)


def _payload(result: Any) -> dict[str, Any]:
    """Of the run: options of the command `toban_run_task`. A list would be an option several times, so `task_args` is a text."""
    task = result.task
    further = {"priority": int(task.priority) or None, "run_after": task.run_after and task.run_after.isoformat()}
    return {
        "task": task.module_path,
        "task_args": json.dumps(result.args, ensure_ascii=False),
        "task_kwargs": result.kwargs,
        "task_id": result.id,
        "backend": result.backend,
        "queue": task.queue_name,
        "enqueued_at": result.enqueued_at.isoformat(),
        **{key: value for key, value in further.items() if value is not None},
    }


def _of_event(queue: str) -> dict[str, str]:
    """The payload of a trigger: that of `_payload`, with the number of the event for an id."""
    names = ("task", "task_args", "task_kwargs", "backend", "queue", "enqueued_at")
    copied = {name: f"{{{{ event.payload.{name} }}}}" for name in names}
    return {**copied, "task_id": f"{_prefix(queue)}-{{{{ event.id }}}}"}


def _event(job: str, number: str) -> Event | None:
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        return None
    page = conf.client().call("GET", "/events", event_type=job, cursor=int(number) + 1, limit=1)
    found = [one for one in map(Event.from_json, page["events"]) if one.id == int(number)]
    return found[0] if found else None


def _result_of(result_id: str, backend: str, run: Run | None, event: Event | None) -> Any:
    """Of a run; of an event that has started none yet, or could not."""
    payload = run.payload if run else event.payload if event else {}
    result = as_enqueued(payload, result_id)
    if result.backend != backend:
        raise exceptions.TaskResultDoesNotExist(result_id)
    if run:
        _add_run(result, run)
    elif event and event.outcome:
        text = f"event {event.id} has started no run: {event.outcome} {event.message}".rstrip()
        set_fields(result, status=api.TaskResultStatus.FAILED, finished_at=_local(event.processed_at))
        result.errors.append(_failure("toban.errors.NotFoundError", text))
    return result


def _add_run(result: Any, run: Run) -> None:
    status = api.TaskResultStatus
    begun = [one for one in run.raw.get("attempts", ()) if one.get("started_at")]
    result.worker_ids.extend(one["executor"] for one in begun)
    if begun:
        first, last = (_local(datetime.fromisoformat(begun[index]["started_at"])) for index in (0, -1))
        set_fields(result, started_at=first, last_attempted_at=last)
    if run.succeeded:
        set_fields(result, status=status.SUCCESSFUL, finished_at=_local(run.finished_at), _return_value=run.result)
    elif run.is_terminal:
        set_fields(result, status=status.FAILED, finished_at=_local(run.finished_at))
        raised = run.result if isinstance(run.result, Mapping) else {}
        path, text = raised.get("exception_class_path"), raised.get("traceback")
        # A run that was killed, or has timed out, has none of its own.
        failure = (
            _failure(path, text) if path and text else _failure("toban.errors.RunFailedError", str(RunFailedError(run)))
        )
        result.errors.append(failure)
    elif run.state in _RUNNING:
        set_fields(result, status=status.RUNNING)


def _failure(path: str, text: str) -> Any:
    return api.TaskError(exception_class_path=path, traceback=text)


def set_fields(result: Any, **values: Any) -> None:
    """Changes a result, which is frozen for its readers."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _emits_in_database() -> bool:
    return bool(conf.options().get("EMIT", "rest") == "database")


def _prefix(queue: str) -> str:
    """The start of the ids of a queue, so that an id leads to its job."""
    return hashlib.sha256(queue.encode()).hexdigest()[:_PREFIX]


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _local(at: datetime | None) -> datetime | None:
    return at if at is None or settings.USE_TZ else timezone.make_naive(at)


def _aware(at: datetime) -> datetime:
    return at if timezone.is_aware(at) else timezone.make_aware(at)
