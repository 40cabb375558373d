"""What the tasks of every peer do. Each leaves one line of a fixed length: its number, when it was enqueued, when it was done."""

import asyncio
import os
import subprocess
import time

_files: list[int] = []


def noop(number: int, enqueued: int) -> None:
    """Nothing but its line."""
    _leave(number, enqueued)


def true(number: int, enqueued: int) -> None:
    """/bin/true as a process; the line is left after its exit."""
    subprocess.run(["/bin/true"], stdin=subprocess.DEVNULL, check=True)
    _leave(number, enqueued)


def due(number: int, enqueued: int) -> None:
    """/bin/true as a process; the line is left before its start."""
    _leave(number, enqueued)
    subprocess.run(["/bin/true"], stdin=subprocess.DEVNULL, check=True)


async def true_async(number: int, enqueued: int) -> None:
    """As `true`, for a worker that is one event loop."""
    process = await asyncio.create_subprocess_exec("/bin/true", stdin=subprocess.DEVNULL)
    if await process.wait() != 0:
        raise RuntimeError("/bin/true failed")
    _leave(number, enqueued)


def _leave(number: int, enqueued: int) -> None:
    if not _files:
        _files.append(os.open(os.environ["BENCH_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    os.write(_files[0], b"%08d %020d %020d\n" % (number, enqueued, time.time_ns()))
