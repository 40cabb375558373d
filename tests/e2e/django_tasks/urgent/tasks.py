"""What a backend by events does not have: a priority of a task."""

from shop.tasks import task


@task(priority=3)
def at_once():
    """Never runs."""
