"""The guard supervisor of a whole executor is killed: its jobs go on, and the process registers again with new guards (docs/fencing.md 3.6)."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from toban_executor.guard.process_tree import children, start_time
from toban_proto.v1 import common_pb2

COUNTS = 'while [ ! -e "$OUT.end" ]; do echo x >> "$OUT"; sleep 0.02; done; echo last line'
SUCCEEDED = common_pb2.OUTCOME_KIND_SUCCEEDED


async def started(world: Any, number: int, file: Path) -> None:
    """A job that writes to `file` until it is told to end."""
    order = world.order(number, "sh", "-c", COUNTS, env={"OUT": str(file)}, on_lease_loss="freeze")
    assert (await world.start(order))[0].accepted
    await world.until(lambda: file.exists() and file.stat().st_size)


def end(file: Path) -> None:
    Path(f"{file}.end").touch()


def supervisor(world: Any) -> int:
    """That of the incarnation registered last."""
    name = f"{world.coordinator.registered[-1].incarnation}.json"
    return int(json.loads((world.tmp / "state" / "guards" / name).read_text())["master"])


async def test_its_jobs_go_on_and_new_work_waits_for_new_guards(world: Any, tmp_path: Path) -> None:
    file, before = tmp_path / "out", supervisor(world)
    await started(world, 1, file)
    keepers = children(before)
    os.kill(before, signal.SIGKILL)
    await world.until(lambda: world.coordinator.beats[-1].draining)
    assert [answer.refusal for answer in await world.start(world.order(2, "true"))] == ["DRAINING"]
    assert "guard supervisor died" in world.executor.log()
    size = file.stat().st_size
    await world.until(lambda: file.stat().st_size > size)
    assert len(world.coordinator.registered) == 1
    end(file)
    await world.granted(incarnations=2)
    assert (await world.outcome(1, 20)).kind == SUCCEEDED
    assert not any(map(start_time, keepers)), "the new incarnation registers after the old guards have ended"
    key = (1, world.order(1, "true").key.token)
    await world.until(lambda: b"last line" in world.archiver.text(key))
    assert supervisor(world) != before
    assert (await world.start(world.order(3, "true")))[0].accepted
    assert (await world.outcome(3)).kind == SUCCEEDED


@pytest.mark.long
async def test_an_idle_executor_registers_again_at_once(world: Any) -> None:
    os.kill(supervisor(world), signal.SIGKILL)
    await world.granted(incarnations=2)
    assert (await world.start(world.order(1, "true")))[0].accepted
    assert (await world.outcome(1)).kind == SUCCEEDED


async def test_a_stop_after_it_still_delivers_what_has_ended(world: Any, tmp_path: Path) -> None:
    file = tmp_path / "out"
    await started(world, 1, file)
    os.kill(supervisor(world), signal.SIGKILL)
    await world.until(lambda: world.coordinator.beats[-1].draining)
    world.executor.process.send_signal(signal.SIGTERM)
    await world.until(lambda: "draining" in world.executor.log())
    end(file)
    await world.until(lambda: world.executor.process.poll() is not None, 30)
    assert (await world.outcome(1)).kind == SUCCEEDED
    assert world.executor.process.returncode == 0
    assert len(world.coordinator.registered) == 1
    assert "incarnation is over" not in world.executor.log(), "its outcomes are delivered before it ends"
