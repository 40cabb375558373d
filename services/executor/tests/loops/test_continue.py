"""Jobs with `on_lease_loss: continue` in a whole executor: they outlive the lease, the fence and report late (docs/fencing.md 3.7)."""

from pathlib import Path
from typing import Any

import pytest

from toban_executor.guard.clock import boottime
from toban_proto.v1 import common_pb2

COUNTS = 'while [ ! -e "$OUT.end" ]; do echo x >> "$OUT"; sleep 0.02; done'


@pytest.fixture(scope="module")
def executor_lease_ms() -> int:
    """Short, and longer than a busy machine keeps the heartbeats of this test's coordinator waiting."""
    return 5000


@pytest.fixture
def short(shared_world: Any) -> Any:
    return shared_world


async def started(world: Any, file: Path, number: int, on_lease_loss: str) -> None:
    """Start a job that writes while it runs, and ends when the file with the ending `.end` is there."""
    order = world.order(number, "sh", "-c", COUNTS, on_lease_loss=on_lease_loss, env={"OUT": str(file)})
    assert (await world.start(order))[0].accepted
    await world.until(lambda: file.exists() and file.stat().st_size)


def size(file: Path) -> int:
    return file.stat().st_size


async def runs(world: Any, file: Path) -> None:
    before = size(file)
    await world.until(lambda: size(file) > before)


async def lease_lost(world: Any) -> None:
    """Until the lease has been over for longer than any enforcement takes."""
    await world.until(lambda: "lease lost" in world.executor.log())
    since = boottime()
    await world.until(lambda: boottime() - since > 1.5)


def end(file: Path) -> None:
    Path(f"{file}.end").touch()


async def test_it_outlives_the_lease_and_goes_on_under_the_next_grant(short: Any, tmp_path: Path) -> None:
    world, file = short, tmp_path / "out"
    await started(world, file, 1, "continue")
    await started(world, tmp_path / "killed", 2, "kill")
    world.coordinator.silent = True
    await lease_lost(world)
    await runs(world, file)
    world.coordinator.silent = False
    assert (await world.outcome(2)).reason == "continuation_refused", "the others end"
    beats = len(world.coordinator.beats)
    await world.until(lambda: len(world.coordinator.beats) > beats + 3)
    assert len(world.coordinator.registered) == 1
    await runs(world, file)
    assert (await world.start(world.order(3, "true")))[0].accepted, "with the lease it takes work again"
    end(file)
    assert (await world.outcome(1)).kind == common_pb2.OUTCOME_KIND_SUCCEEDED


async def test_it_outlives_the_fence_and_its_executor_joins_again_after_it(short: Any, tmp_path: Path) -> None:
    world, file = short, tmp_path / "out"
    await started(world, file, 1, "continue")
    await started(world, tmp_path / "frozen", 2, "freeze")
    world.coordinator.silent = True
    await lease_lost(world)
    world.coordinator.state = "off"
    world.coordinator.silent = False
    assert (await world.outcome(2)).reason == "continuation_refused"
    await runs(world, file)
    assert len(world.coordinator.registered) == 1
    assert not (await world.start(world.order(3, "true")))[0].accepted, "it takes no work"
    end(file)
    assert (await world.outcome(1)).kind == common_pb2.OUTCOME_KIND_SUCCEEDED, "by the key of its incarnation"
    await world.granted(incarnations=2)


async def test_it_ends_when_its_run_has_gone_on_elsewhere(short: Any, tmp_path: Path) -> None:
    world, file = short, tmp_path / "out"
    await started(world, file, 1, "continue")
    world.coordinator.silent = True
    await lease_lost(world)
    world.coordinator.state = "off"
    world.coordinator.not_held = [common_pb2.AttemptKey(run_id=1, token=world.key(1)[1])]
    world.coordinator.silent = False
    assert (await world.outcome(1)).reason == "lease_lost"
    await world.granted(incarnations=2)
