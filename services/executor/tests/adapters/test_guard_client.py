"""The executor's end of the connection to its guards."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toban_executor.adapters.guard_client import GuardClient
from toban_executor.decide.guard_types import AttemptStart
from toban_executor.guard.process_tree import children, start_time
from toban_runtime.clock import SystemClock


def process(program: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([program])


@pytest.mark.parametrize(("program", "proven"), [("/bin/true", True), ("/bin/false", False)])
async def test_only_guards_that_ended_in_order_prove_that_nothing_is_left(program: str, proven: bool) -> None:
    guards: Any = SimpleNamespace(slots=[], close=lambda: None, supervisor=process(program))
    assert await GuardClient(guards=guards, clock=SystemClock()).close(timeout=5.0) is proven


@pytest.mark.parametrize("script", ["sleep 600", "env -i sleep 600 & sleep 600"])
async def test_jobs_of_dead_guards_are_dead_when_the_incarnation_ends(
    guard_harness: type[Any], tmp_path: Path, script: str
) -> None:
    harness = guard_harness(tmp_path, slots=2)
    env = {"PATH": "/usr/bin:/bin", "TOBAN_INCARNATION": harness.incarnation}
    harness.spawn("sh", "-c", f"{script}; true", env=env)
    main = harness.receive(AttemptStart).pid
    jobs = [main, *children(main)]
    gone = asyncio.Event()
    client = GuardClient(guards=harness.guards, clock=SystemClock())
    supervisor = harness.guards.supervisor.pid
    for pid in (supervisor, *children(supervisor)):
        os.kill(pid, signal.SIGKILL)
    harness.guards.supervisor.wait()
    living: list[int] = []

    def guards_gone() -> None:
        living.extend(filter(start_time, jobs))
        gone.set()

    client.listen(SimpleNamespace(guards_gone=guards_gone))  # type: ignore[arg-type]
    await asyncio.wait_for(gone.wait(), 10)
    assert living == []
    await client.close(timeout=1.0)
