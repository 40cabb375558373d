"""Tasks of the project."""

import sys

from toban import current_job

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def add(a, b):
    """The sum."""
    return a + b


@task(queue_name="mail")
async def multiply(a, b):
    """The product."""
    return a * b


@task(takes_context=True)
def context_of(context, key):
    """What a task knows of its own run."""
    result = context.task_result
    return {"key": key, "id": result.id, "attempt": context.attempt, "priority": result.task.priority}


@task
def fail(text):
    """Raises."""
    raise ValueError(text)


@task
def large():
    """Returns what is too large for a result."""
    return "x" * 40_000


@task
def leave():
    """Ends its process."""
    sys.exit(3)


@task
def second_try():
    """Fails at first."""
    if current_job().attempt == 1:
        raise RuntimeError("not yet")
    return current_job().attempt


def not_a_task(text):
    """A function like others."""
    return text
