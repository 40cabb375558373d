"""An executor in a container of class `shared`, whose jobs stop it and its guards: `python -m toban_executor watch` as the first process."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from toban_executor.guard.clock import boottime, pause
from toban_executor.guard.freezer import thread_states
from toban_executor.guard.process_tree import children, descendants, slot_of, start_time

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root here")
# As a container makes it: its first process is the watcher.
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
STOPS_ALL = (
    "import os, signal\nfor _ in range({times}):\n    os.kill(-1, signal.SIGSTOP)\n    import time; time.sleep({pause})"
)


class Container:
    """The processes on the machine."""

    def __init__(self, world: Any) -> None:
        [self.watcher] = children(world.executor.pid)
        [self.executor] = children(self.watcher)
        [self.supervisor] = children(self.executor)
        self.slots = [pid for pid in children(self.supervisor) if slot_of(pid) is not None]

    @property
    def own(self) -> list[int]:
        return [self.executor, self.supervisor, *self.slots]


@pytest_asyncio.fixture
async def contained(world_maker: Any) -> AsyncIterator[Any]:
    world = world_maker()
    try:
        await world.open(prefix=CONTAINER, arguments=("watch",))
        yield world
    finally:
        if world.executor.process.poll() is None:
            # The kernel ends all with the first process.
            for pid in children(world.executor.pid):
                os.kill(pid, signal.SIGKILL)
            world.executor.process.wait()
        await world.close()


async def stops(world: Any, *, times: int, seconds: float) -> None:
    script = STOPS_ALL.format(times=times, pause=seconds)
    await world.start(world.order(1, sys.executable, "-I", "-c", script))


async def test_what_a_job_has_stopped_goes_on_within_a_second(contained: Any) -> None:
    found = Container(contained)
    begun = boottime()
    await stops(contained, times=1, seconds=0)
    await contained.until(lambda: "was stopped; it goes on" in contained.executor.log())
    await contained.until(lambda: not any(thread_states(pid) & set(b"T") for pid in found.own))
    assert boottime() - begun < 5
    assert (await contained.outcome(1, 20)).kind, "the executor reports"
    assert all(start_time(pid) for pid in (found.watcher, *found.own))


async def test_a_job_that_stops_all_again_and_again_ends_all_before_the_lease(contained: Any, tmp_path: Path) -> None:
    """The job of another slot writes while it runs: nothing of it is left when its lease ends."""
    found = Container(contained)
    mark = tmp_path / "mark"
    await contained.start(contained.order(2, "sh", "-c", f"while :; do echo x >> {mark}; sleep 0.01; done"))
    await contained.until(mark.exists)
    below = descendants(found.watcher)
    await stops(contained, times=2000, seconds=0.005)
    # The process of unshare ends with its child.
    await contained.until(lambda: contained.executor.process.poll() is not None, 20)
    assert "so everything ends before a lease is lost" in contained.executor.log()
    assert not [pid for pid in (*below, *found.own) if start_time(pid)]
    size = mark.stat().st_size
    pause(0.2)
    assert mark.stat().st_size == size


async def test_a_job_can_neither_stop_nor_kill_the_watcher(contained: Any) -> None:
    found = Container(contained)
    await contained.start(contained.order(1, "sh", "-c", "kill -STOP 1; kill -KILL 1; kill -TERM 1; exit 3"))
    await contained.outcome(1, 20)
    assert start_time(found.watcher) and thread_states(found.watcher) <= set(b"SR")


async def test_the_end_of_the_executor_is_that_of_the_container(contained: Any) -> None:
    found = Container(contained)
    os.kill(found.watcher, signal.SIGTERM)
    await contained.until(lambda: contained.executor.process.poll() is not None, 30)
    assert contained.executor.process.returncode == 0
