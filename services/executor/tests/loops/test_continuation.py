"""Questions whether jobs may continue, in a whole executor: heartbeats get no answer, questions do (docs/fencing.md 3.7)."""

from pathlib import Path
from typing import Any

import pytest

from toban_executor.guard.clock import boottime
from toban_proto.v1 import common_pb2

COUNTS = 'while [ ! -e "$OUT.end" ]; do echo x >> "$OUT"; sleep 0.02; done'


@pytest.fixture
def world(shared_world: Any) -> Any:
    return shared_world


class Job:
    """A job that writes to a file while it runs."""

    def __init__(self, world: Any, file: Path, number: int = 1) -> None:
        self.world = world
        self.file = file
        self.number = number
        self.key = world.key(number)

    async def start(self, **fields: Any) -> "Job":
        """Until it writes."""
        fields = {"env": {"OUT": str(self.file)}, **fields}
        answers = await self.world.start(self.world.order(self.number, "sh", "-c", COUNTS, **fields))
        assert answers[0].accepted
        await self.world.until(lambda: self.file.exists() and self.file.stat().st_size)
        return self

    async def assert_runs(self) -> None:
        size = self.file.stat().st_size
        await self.world.until(lambda: self.file.stat().st_size > size)

    async def end(self) -> Any:
        """Let it end; its outcome."""
        self._tell_to_end()
        return await self.world.outcome(self.number)

    def _tell_to_end(self) -> None:
        Path(f"{self.file}.end").touch()


def keys(question: Any) -> list[tuple[int, int]]:
    return [(key.run_id, key.token) for key in question.keys]


async def test_jobs_outlive_the_lease_by_confirmations_alone(world: Any, tmp_path: Path) -> None:
    """Of jobs that are killed at the end of a lease the signal would come before it, so the question comes at its half."""
    killed = await Job(world, tmp_path / "killed", 1).start(on_lease_loss="kill")
    frozen = await Job(world, tmp_path / "frozen", 2).start(on_lease_loss="freeze")
    world.coordinator.deaf = True
    began = boottime()
    await world.until(lambda: boottime() - began > 11.0)
    await killed.assert_runs()
    await frozen.assert_runs()
    assert all(keys(question) == [killed.key, frozen.key] for question in world.coordinator.questions)
    assert len({question.nonce for question in world.coordinator.questions}) >= 2, (
        "a confirmation brings the next nonce"
    )
    assert "job frozen" not in world.executor.log()
    world.coordinator.deaf = False
    assert (await killed.end()).kind == (await frozen.end()).kind == common_pb2.OUTCOME_KIND_SUCCEEDED
    assert len(world.coordinator.registered) == 1


@pytest.mark.seed(19)
@pytest.mark.asyncio(loop_scope="module")
async def test_without_a_confirmation_a_job_is_frozen_at_the_deadline(world_maker: Any, tmp_path: Path) -> None:
    world = world_maker(lease_ms=4000)
    await world.open()
    world.coordinator.settings.set(continuation_retry_count=2)
    await world.until(lambda: "settings changed" in world.executor.log())
    job = await Job(world, tmp_path / "out").start(on_lease_loss="freeze")
    world.coordinator.deaf, world.coordinator.confirming = True, False
    await world.until(lambda: "job frozen" in world.executor.log())
    assert 1 <= len(world.coordinator.questions) <= 2, "as often as the setting says"
    world.coordinator.deaf = False
    await job.assert_runs()
    await job.end()
    await world.close()


async def test_what_may_not_continue_is_ended_before_the_grant_counts(world: Any, tmp_path: Path) -> None:
    kept = await Job(world, tmp_path / "kept", 1).start(on_lease_loss="kill")
    canceled = await Job(world, tmp_path / "canceled", 2).start(on_lease_loss="kill")
    moved = await Job(world, tmp_path / "moved", 3).start(on_lease_loss="kill")
    world.coordinator.refused = {canceled.key: "canceled", moved.key: "not_held"}
    world.coordinator.deaf = True
    assert (await world.outcome(2, seconds=20)).kind == common_pb2.OUTCOME_KIND_CANCELED
    assert (await world.outcome(3)).reason == "lease_lost"
    world.coordinator.deaf = False
    await kept.assert_runs()
    await kept.end()


@pytest.mark.seed(98)
async def test_a_detach_that_lets_finish_is_confirmed_and_the_executor_joins_again(world: Any, tmp_path: Path) -> None:
    job = await Job(world, tmp_path / "out").start(on_lease_loss="freeze")
    world.coordinator.state, world.coordinator.detach_mode = "detached", "let_finish"
    await world.until(lambda: world.coordinator.questions)
    beats = len(world.coordinator.beats)
    await world.until(lambda: len(world.coordinator.beats) > beats + 5)
    # Once for this detach: each of these heartbeats was granted and so has moved the deadline. A slow answer is asked for again.
    assert [keys(question) for question in world.coordinator.questions] in ([[job.key]] * tries for tries in (1, 2, 3))
    await job.assert_runs()
    assert len(world.coordinator.registered) == 1
    assert (await job.end()).kind == common_pb2.OUTCOME_KIND_SUCCEEDED
    await world.granted(incarnations=2)


@pytest.mark.long
async def test_a_detach_that_stops_asks_nothing_and_ends_the_jobs_now(world: Any, tmp_path: Path) -> None:
    await Job(world, tmp_path / "out").start(on_lease_loss="freeze")
    world.coordinator.state, world.coordinator.detach_mode = "detached", "stop"
    assert (await world.outcome(1)).reason == "continuation_refused"
    assert world.coordinator.questions == []
    await world.granted(incarnations=2)


@pytest.mark.seed(99)
async def test_a_refusal_for_a_detach_ends_the_jobs_although_no_heartbeat_told_of_it(
    world: Any, tmp_path: Path
) -> None:
    job = await Job(world, tmp_path / "out").start(on_lease_loss="kill")
    coordinator = world.coordinator
    coordinator.deaf, coordinator.confirming, coordinator.refused = True, False, {job.key: "detached"}
    outcome = await world.outcome(1, seconds=20)
    assert (outcome.reason, "detached the executor" in outcome.error_summary) == ("continuation_refused", True)
