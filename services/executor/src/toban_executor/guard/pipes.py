"""Pipes of a guard: those of its jobs, their input, and the one that shows that a child has ended."""

import os
import select
import signal
from collections.abc import Iterable


def signal_pipe() -> int:
    """A descriptor that becomes readable when a child ends."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return read


def open_pipe() -> tuple[int, int]:
    """A pipe whose reading end does not block; the writing end does, because the job gets it."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    return read, write


def input_file(text: str) -> int:
    """A file in memory with this text, to be read from its beginning."""
    fd = os.memfd_create("input", os.MFD_CLOEXEC)
    data = memoryview(text.encode())
    while data:
        data = data[os.write(fd, data) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def readable(pipes: Iterable[int]) -> bool:
    """True when something waits in one of the pipes."""
    poll = select.poll()
    for fd in pipes:
        poll.register(fd, select.POLLIN)
    return any(event & select.POLLIN for _fd, event in poll.poll(0))
