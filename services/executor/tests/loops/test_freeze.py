"""Jobs with `on_lease_loss: freeze` in a whole executor: grants stop, processes are stopped and killed (docs/fencing.md 3.7)."""

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toban_executor.guard.clock import boottime
from toban_executor.guard.process_tree import children, start_time
from toban_proto.v1 import common_pb2, executor_pb2

LEASE_MS = 5000
COUNTS = 'trap "" TERM; while [ ! -e "$OUT.end" ]; do echo x >> "$OUT"; sleep 0.02; done'
"""Shows by its file whether it runs, and ends when it is told to."""


@pytest.fixture(scope="module")
def executor_lease_ms() -> int:
    """Short, and longer than a busy machine keeps the heartbeats of this test's coordinator waiting."""
    return LEASE_MS


@pytest.fixture
def short(shared_world: Any) -> Any:
    return shared_world


@pytest.fixture
async def own_short(world_maker: Any) -> AsyncIterator[Any]:
    """A world whose lease is short."""
    made = world_maker(lease_ms=LEASE_MS)
    await made.open()
    yield made
    await made.close()


class Job:
    """A job that writes to a file while it runs."""

    def __init__(self, world: Any, file: Path, number: int = 1) -> None:
        self.world = world
        self.file = file
        self.number = number

    async def start(self, **fields: Any) -> "Job":
        """Until it writes."""
        fields = {"on_lease_loss": "freeze", "env": {"OUT": str(self.file)}, **fields}
        answers = await self.world.start(self.world.order(self.number, "sh", "-c", COUNTS, **fields))
        assert answers[0].accepted
        await self.world.until(lambda: self.file.exists() and self.file.stat().st_size)
        return self

    @property
    def size(self) -> int:
        return self.file.stat().st_size

    async def assert_still(self) -> None:
        """Nothing is written for a while."""
        size, wait = self.size, Clock()
        await self.world.until(lambda: wait.passed(0.5))
        assert self.size == size

    async def assert_runs(self) -> None:
        size = self.size
        await self.world.until(lambda: self.size > size)

    async def end(self) -> Any:
        """Let it end; its outcome."""
        self._tell_to_end()
        return await self.world.outcome(self.number)

    def _tell_to_end(self) -> None:
        Path(f"{self.file}.end").touch()


class Clock:
    """Since when something waits."""

    def __init__(self) -> None:
        self._begun = boottime()

    def passed(self, seconds: float) -> bool:
        return boottime() - self._begun > seconds


async def frozen(world: Any, times: int = 1) -> None:
    await world.until(lambda: world.executor.log().count("job frozen") >= times)


def turns(world: Any, number: int = 1) -> list[int]:
    """What heartbeats said of the freezes of a run, without repetition."""
    said = [held.freeze_turns for beat in world.coordinator.beats for held in beat.held if held.key.run_id == number]
    return [turn for place, turn in enumerate(said) if turn and turn not in said[:place]]


def guards(world: Any) -> tuple[int, list[int]]:
    """The guard supervisor and the slot supervisors."""
    name = f"{world.coordinator.registered[-1].incarnation}.json"
    record = json.loads((world.tmp / "state" / "guards" / name).read_text())
    return record["master"], children(record["master"])


async def test_an_outage_costs_time_and_no_job(short: Any, tmp_path: Path) -> None:
    world, job = short, await Job(short, tmp_path / "out").start()
    world.coordinator.silent = True
    await frozen(world)
    await job.assert_still()
    world.coordinator.silent = False
    await job.assert_runs()
    await world.until(lambda: turns(world) == [1, 2])
    last = [held for beat in world.coordinator.beats for held in beat.held if held.freeze_turns == 2][-1]
    assert 0.5 <= last.frozen_seconds < 60
    outcome = await job.end()
    assert outcome.kind == common_pb2.OUTCOME_KIND_SUCCEEDED
    assert len(world.coordinator.registered) == 1, "the incarnation is the same"
    assert (await world.start(world.order(2, "true")))[0].accepted


async def test_a_frozen_job_that_the_cluster_does_not_hold_never_runs_again(short: Any, tmp_path: Path) -> None:
    world = short
    job = await Job(world, tmp_path / "out").start()
    kept = await Job(world, tmp_path / "kept", 2).start()
    world.coordinator.silent = True
    await frozen(world, 2)
    size = job.size
    world.coordinator.not_held = [common_pb2.AttemptKey(run_id=1, token=world.key(1)[1])]
    world.coordinator.silent = False
    outcome = await world.outcome(1)
    assert (outcome.signal, outcome.reason, job.size) == (signal.SIGKILL, "lease_lost", size)
    await kept.assert_runs()
    await kept.end()


async def test_a_fenced_executor_kills_what_is_frozen(short: Any, tmp_path: Path) -> None:
    world, job = short, await Job(short, tmp_path / "out").start()
    world.coordinator.silent = True
    await frozen(world)
    size = job.size
    world.coordinator.state = "off"
    world.coordinator.silent = False
    await world.granted(incarnations=2)
    assert (await world.outcome(1)).reason == "continuation_refused"
    assert job.size == size


async def test_a_cancel_of_a_frozen_job_kills_it(short: Any, tmp_path: Path) -> None:
    world, job = short, await Job(short, tmp_path / "out").start()
    world.coordinator.silent = True
    await frozen(world)
    size = job.size
    await cancel(world, "kill", 60.0)
    world.coordinator.silent = False
    outcome = await world.outcome(1)
    assert (outcome.kind, outcome.signal) == (common_pb2.OUTCOME_KIND_CANCELED, signal.SIGKILL)
    assert job.size == size


async def test_a_cooperative_cancel_of_a_frozen_job_ends_it_after_the_grant(short: Any, tmp_path: Path) -> None:
    """It ignores SIGTERM: SIGKILL follows, and the outcome says that the tree is empty."""
    world, job = short, await Job(short, tmp_path / "out").start()
    world.coordinator.silent = True
    await frozen(world)
    await cancel(world, "cooperative", 0.5)
    await job.assert_still()
    size = job.size
    world.coordinator.silent = False
    outcome = await world.outcome(1)
    assert (outcome.kind, outcome.signal) == (common_pb2.OUTCOME_KIND_CANCELED, signal.SIGKILL)
    assert (outcome.tree_empty, outcome.error_summary) == (True, "asked")
    assert job.size > size, "it ran between the grant and its end"
    await world.until(lambda: turns(world)[:1] == [1])


async def test_a_job_of_the_definition_kill_ends_beside_a_frozen_one(short: Any, tmp_path: Path) -> None:
    world = short
    job = await Job(world, tmp_path / "out").start()
    await Job(world, tmp_path / "other", 2).start(on_lease_loss="kill")
    world.coordinator.silent = True
    await frozen(world)
    world.coordinator.silent = False
    assert (await world.outcome(2)).reason == "continuation_refused"
    await job.assert_runs()
    assert len(world.coordinator.registered) == 1
    await job.end()


@pytest.mark.long
async def test_a_guard_that_wakes_up_meanwhile_takes_over(short: Any, tmp_path: Path) -> None:
    world, job = short, await Job(short, tmp_path / "out").start()
    supervisor, keepers = guards(world)
    for pid in (supervisor, *keepers):
        os.kill(pid, signal.SIGSTOP)
    world.coordinator.silent = True
    await frozen(world)
    for pid in (supervisor, *keepers):
        os.kill(pid, signal.SIGCONT)
    await job.assert_still()
    world.coordinator.silent = False
    await job.assert_runs()
    assert (await job.end()).kind == common_pb2.OUTCOME_KIND_SUCCEEDED


async def test_a_stopped_executor_does_not_let_a_job_run_on(short: Any, tmp_path: Path) -> None:
    world, job = short, await Job(short, tmp_path / "out").start()
    os.kill(world.executor.pid, signal.SIGSTOP)
    try:
        wait = Clock()
        await world.until(lambda: wait.passed(LEASE_MS / 1000 + 0.2))
        await job.assert_still()
    finally:
        os.kill(world.executor.pid, signal.SIGCONT)
    await job.assert_runs()
    await world.until(lambda: turns(world) == [1, 2])
    assert (await job.end()).kind == common_pb2.OUTCOME_KIND_SUCCEEDED


async def test_a_stopped_guard_does_not_let_a_job_run_on(own_short: Any, tmp_path: Path) -> None:
    """The executor freezes it in its place, and lets it go on."""
    world, job = own_short, await Job(own_short, tmp_path / "out").start(timeout_seconds=30)
    supervisor, keepers = guards(world)
    for pid in (supervisor, *keepers):
        os.kill(pid, signal.SIGSTOP)
    try:
        world.coordinator.silent = True
        await frozen(world)
        await job.assert_still()
        world.coordinator.silent = False
        await job.assert_runs()
    finally:
        for pid in (supervisor, *keepers):
            os.kill(pid, signal.SIGCONT)
    await world.until(lambda: turns(world)[:2] == [1, 2])
    assert (await job.end()).kind == common_pb2.OUTCOME_KIND_SUCCEEDED
    assert len(world.coordinator.registered) == 1


async def test_the_setting_limits_the_time_in_the_freezer(own_short: Any, tmp_path: Path) -> None:
    """Also of jobs that are frozen already."""
    world, job = own_short, await Job(own_short, tmp_path / "out").start()
    world.coordinator.granting = False
    await frozen(world)
    size = job.size
    world.coordinator.settings.set(lease_freeze_max_seconds=1)
    outcome = await world.outcome(1)
    assert (outcome.reason, outcome.signal, job.size) == ("continuation_refused", signal.SIGKILL, size)
    assert "lease_freeze_max_seconds = 1" in outcome.error_summary


async def cancel(world: Any, mode: str, grace: float) -> None:
    key = common_pb2.AttemptKey(run_id=1, token=world.key(1)[1])
    order = executor_pb2.CancelOrder(key=key, mode=mode, grace_seconds=grace, reason="asked")
    request = executor_pb2.CancelJobRequest(header=world.header(), orders=[order])
    assert (await world.worker.CancelJob(request, timeout=60)).results[0].result == "cancelling"


@pytest.mark.long
async def test_stopped_guards_are_found_without_their_supervisor(own_short: Any, tmp_path: Path) -> None:
    """It was killed, so that they are nobody's children that the executor could find."""
    world, job = own_short, await Job(own_short, tmp_path / "out").start(timeout_seconds=30)
    supervisor, keepers = guards(world)
    os.kill(supervisor, signal.SIGKILL)
    for pid in keepers:
        os.kill(pid, signal.SIGSTOP)
    try:
        world.coordinator.silent = True
        await frozen(world)
        await job.assert_still()
        world.coordinator.silent = False
        await job.assert_runs()
    finally:
        for pid in keepers:
            os.kill(pid, signal.SIGCONT)
    await world.until(lambda: turns(world)[:2] == [1, 2])
    assert (await job.end()).kind == common_pb2.OUTCOME_KIND_SUCCEEDED


@pytest.mark.long
async def test_a_job_whose_slot_supervisor_is_dead_is_killed_while_the_guard_supervisor_is_stopped(
    own_short: Any, tmp_path: Path
) -> None:
    world = own_short
    await Job(world, tmp_path / "out").start()
    supervisor, keepers = guards(world)
    [main] = [pid for keeper in keepers for pid in children(keeper)]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        for pid in keepers:
            os.kill(pid, signal.SIGKILL)
        world.coordinator.silent = True
        await world.until(lambda: not start_time(main))
    finally:
        os.kill(supervisor, signal.SIGCONT)


@pytest.mark.long
async def test_a_stopped_slot_supervisor_does_not_outlive_the_executor_with_its_job(
    own_short: Any, tmp_path: Path
) -> None:
    """Neither it nor the executor can act: the guard supervisor wakes it."""
    world = own_short
    await Job(world, tmp_path / "out").start()
    _supervisor, keepers = guards(world)
    [main] = [pid for keeper in keepers for pid in children(keeper)]
    for pid in keepers:
        os.kill(pid, signal.SIGSTOP)
    world.executor.process.kill()
    await world.until(lambda: not start_time(main))
    await world.until(lambda: not any(map(start_time, keepers)))


async def test_the_death_of_the_executor_ends_what_is_frozen(own_short: Any, tmp_path: Path) -> None:
    world, job = own_short, await Job(own_short, tmp_path / "out").start()
    _supervisor, keepers = guards(world)
    [main] = [pid for keeper in keepers for pid in children(keeper)]
    world.coordinator.silent = True
    await frozen(world)
    size = job.size
    world.executor.stop()
    await world.until(lambda: not start_time(main))
    assert job.size == size
