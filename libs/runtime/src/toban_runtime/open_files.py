"""How many files a process may have open. Standard library only: the executor needs it before anything else is loaded."""

import contextlib
import resource


def open_files() -> int:
    """How many files this process may have open now."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files() -> int:
    """As many as the machine allows it; returns what it was. The usual 1024 is reached by connections that say nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    set_open_files(hard)
    return soft


def set_open_files(files: int) -> None:
    """For this process and what it starts; a number that the kernel refuses changes nothing."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
