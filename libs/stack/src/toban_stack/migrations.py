"""The schema of the stack's database."""

import os

from toban_domain.errors import TobanError
from toban_stack.errors import StackError


def apply(url: str) -> str:
    """Applies missing migrations and says what it did, in a line. Raises StackError with the runner's words."""
    # Imported here: the driver is needed by `up` alone, and `status` shall answer at once.
    from toban_store import migrate

    try:
        applied = migrate.up(url, seeds=migrate.seeds_from(os.environ))
    except TobanError as error:
        raise StackError(f"the database could not be migrated: {error}") from error
    return f"schema: {len(applied)} migrations applied" if applied else "schema: up to date"
