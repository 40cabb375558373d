"""Tasks run, and their results are found by their ids."""

import asyncio
from datetime import timedelta

from django.utils import timezone
from scripts.common import ended
from shop import tasks

from toban.django import conf
from toban.django.tasks import exceptions, signals
from toban.errors import InvalidRequestError, NotFoundError

announced = []
signals.task_enqueued.connect(lambda task_result, **_: announced.append(task_result.id), weak=False)

result = tasks.add.enqueue(1, 2)
assert result.status == "READY" and announced == [result.id], (result, announced)
assert ended(result).return_value == 3 and result.status == "SUCCESSFUL"
assert result.attempts == 1 and result.worker_ids[0].startswith("executor-")
assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
assert tasks.add.get_result(result.id) == result

product = asyncio.run(tasks.multiply.aenqueue(3, b=4))
assert ended(product).return_value == 12
assert asyncio.run(tasks.multiply.aget_result(product.id)) == product

for key, priority in (("a", -100), ("b", 100)):
    found = ended(tasks.context_of.using(priority=priority).enqueue(key=key))
    assert found.return_value == {"key": key, "id": found.id, "attempt": 1, "priority": priority}
    assert found.task.priority == priority

for task, arguments, path, end in (
    (tasks.fail, ["é" * 9_000], "builtins.ValueError", "é\n"),
    (tasks.large, [], "toban.job.JobError", "put the data into a file or a bucket and pass its name\n"),
    (tasks.leave, [], "builtins.SystemExit", "SystemExit: 3\n"),
):
    found = ended(task.enqueue(*arguments))
    [error] = found.errors
    assert (found.status, error.exception_class_path) == ("FAILED", path), found
    assert error.traceback.endswith(end) and issubclass(error.exception_class, BaseException), error

later = tasks.add.using(run_after=timezone.now() + timedelta(seconds=3)).enqueue(5, 6)
later.refresh()
assert later.status == "READY" and ended(later).started_at >= later.task.run_after and later.return_value == 11
assert ended(tasks.add.using(run_after=timezone.now() - timedelta(days=3)).enqueue(5, 6)).return_value == 11

canceled = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(5, 6)
[run] = conf.client().runs.list(
    idempotency_key=canceled.id, job=canceled.task.get_backend().jobs["default"], ahead=True
)
conf.client().runs.cancel(run.id, reason="not needed")
assert [error.exception_class_path for error in ended(canceled).errors] == ["toban.errors.RunFailedError"]

backend = tasks.add.get_backend()
many = backend.enqueue_many([(tasks.add, (number, number), {}) for number in range(20)])
assert [ended(one).return_value for one in many] == [2 * number for number in range(20)]
assert backend.enqueue_many([]) == []

for wrong, error in (
    (lambda: tasks.add.get_result(product.id), exceptions.TaskResultMismatch),
    (lambda: backend.get_result("123"), exceptions.TaskResultDoesNotExist),
    (lambda: backend.get_result(f"{result.id[:8]}-9x"), exceptions.TaskResultDoesNotExist),
    (lambda: backend.get_result(f"{result.id}x"), exceptions.TaskResultDoesNotExist),
    (lambda: tasks.add.enqueue("x" * 40_000, ""), InvalidRequestError),
    (lambda: tasks.add.enqueue(object(), 1), TypeError),
):
    try:
        wrong()
    except error:
        continue
    raise AssertionError(error)

backend.queues.add("new")
try:
    tasks.add.using(queue_name="new").enqueue(1, 2)
except NotFoundError as error:
    assert "toban_sync" in error.__notes__[0]
else:
    raise AssertionError("the queue has no job")
