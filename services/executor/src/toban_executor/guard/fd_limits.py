"""How many files this process may have open, and so how many slots it can have. Standard library only: it runs before anything else is loaded."""

import contextlib
import resource

RESERVED_FILES = 128
"""Files for everything but the slots: the journal, connections, the admin port."""
FILES_A_SLOT = 2
"""While the guards start, both ends of a slot's socket are open here; half of them serve connections later."""


def open_files() -> int:
    """How many files this process may have open now."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files() -> int:
    """As many as the machine allows it; returns what it was, which is what jobs get."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    set_open_files(hard)
    return soft


def set_open_files(files: int) -> None:
    """For this process and what it starts; a number that the kernel refuses changes nothing."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def most_slots() -> int:
    """How many slots the open files of this process allow; one at least."""
    return max(1, (open_files() - RESERVED_FILES) // FILES_A_SLOT)
