"""A committed transaction enqueues its tasks, and one that was rolled back enqueues none."""

from django.db import transaction
from scripts.common import ended
from shop import tasks

from toban.django import conf
from toban.django.tasks import exceptions


def is_there(result):
    """Whether the result can be found."""
    try:
        result.refresh()
    except exceptions.TaskResultDoesNotExist:
        return False
    return True


def rolled_back():
    """The result of a task of a transaction that was rolled back."""
    with transaction.atomic():
        found = tasks.add.enqueue(-1, -1)
        transaction.set_rollback(True)
    return found


with transaction.atomic():
    kept = [tasks.add.enqueue(1, 2), tasks.multiply.enqueue(3, 4), tasks.context_of.enqueue("a")]
    lost = rolled_back()
    assert not any(map(is_there, kept)), "they exist before the transaction has committed"
assert all(map(is_there, kept))
assert [ended(one).return_value for one in kept[:2]] == [3, 12]
assert ended(kept[2]).return_value == {"key": "a", "id": kept[2].id, "attempt": 1, "priority": 0}
gone = rolled_back()
# A later one has ended, so these would be there.
assert ended(tasks.add.enqueue(5, 6)).return_value == 11
with transaction.atomic():
    last = tasks.add.enqueue(7, 8)
assert ended(last).return_value == 15
assert not is_there(lost) and not is_there(gone)
payloads = [run.payload for run in conf.client().runs.list(job=last.task.get_backend().jobs["default"], ahead=True)]
assert "[-1, -1]" not in [payload["task_args"] for payload in payloads]
