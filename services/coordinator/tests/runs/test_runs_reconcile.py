"""PostgreSQL holds a run for an executor that has ended it: it is noticed, and never too early."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from toban_coordinator.app.executors.lease_grants import LeaseGrants
from toban_coordinator.decide.runs.reconcile import FINISHED_SECONDS
from toban_coordinator.store.executors.executors import Beat
from toban_coordinator.store.runs.unresolved_attempts import Named
from toban_domain.outcome import AttemptKey

OLDER = "UPDATE scheduler.runs_live SET dispatched_at = dispatched_at - interval '6 s'"


class Executor:
    """Heartbeats of one incarnation, by way of any coordinator."""

    def __init__(self, world: Any, incarnation: str) -> None:
        self.world = world
        self.incarnation = incarnation
        self.grants = LeaseGrants(pool=world.pool)
        self.echo = 0

    async def beat(
        self,
        held: Sequence[AttemptKey] = (),
        unanswered: Sequence[AttemptKey] = (),
        quarantined: Mapping[AttemptKey, str] | None = None,
        names_all: bool = True,
    ) -> None:
        named = Named(known=unanswered, quarantined=quarantined or {}) if names_all else None
        answer = await self.grants.heartbeat(Beat(incarnation=self.incarnation, echo=self.echo), held, named)
        assert answer.grant is not None
        self.echo = answer.grant.grant_seq


async def restored(world: Any, make: Any, **spec: Any) -> tuple[Executor, int]:
    """A run whose executor has had its outcome accepted; PostgreSQL has lost that commit and calls the run RUNNING."""
    incarnation = await world.executor()
    await world.apply(make.job(**spec))
    [run] = await world.start()
    await world.turn("assign")
    await world.report(world.key(run), world.now())
    await world.sql("CREATE TABLE lost_commit AS SELECT * FROM scheduler.runs_live")
    assert await world.report(world.key(run), make.outcome()) == "accepted"
    await world.sql("DELETE FROM scheduler.runs_history")
    await world.sql("UPDATE scheduler.job_attempts SET outcome = NULL, state = 'RUNNING'")
    await world.sql("INSERT INTO scheduler.runs_live SELECT * FROM lost_commit")
    await world.sql(OLDER)
    assert await world.state(run) == "RUNNING"
    return Executor(world, incarnation), int(run)


def wait_for_the_outcome(world: Any) -> None:
    """The time for an outcome passes after `finished`."""
    since = world.sender._answers.ended.since
    for key in since:
        since[key] -= FINISHED_SECONDS


async def test_a_run_whose_result_postgresql_has_lost_is_repeated(world: Any, make: Any) -> None:
    executor, run = await restored(world, make)
    world.orders.revoke_answer = "finished"
    await executor.beat()
    await world.turn("reconcile")
    assert world.orders.revokes == []
    await executor.beat()
    await world.turn("reconcile")
    assert world.orders.revokes == [(executor.incarnation, world.key(run))]
    await world.turn("reconcile")
    assert await world.state(run) == "RUNNING"
    wait_for_the_outcome(world)
    await world.turn("reconcile")
    assert await world.state(run) == "ORPHANED"
    [attempt] = await world.sql("SELECT state, reason FROM scheduler.job_attempts")
    assert (attempt["state"], attempt["reason"]) == ("LOST", "lost_result")
    await world.turn("reap", "assign")
    row = await world.run(run)
    assert (row["state"], row["lost_count"], row["attempt"]) == ("ASSIGNED", 1, 1)
    assert await world.sql("SELECT 1 FROM scheduler.unresolved_attempts") == []


async def test_what_the_executor_promises_never_to_run_is_repeated_at_once(world: Any, make: Any) -> None:
    executor, run = await restored(world, make)
    await executor.beat()
    await executor.beat()
    await world.turn("reconcile")
    assert await world.state(run) == "ORPHANED"


@pytest.mark.parametrize("answer", ["running", "STALE_EPOCH", "WRONG_INCARNATION"])
async def test_other_answers_move_nothing(world: Any, make: Any, answer: str) -> None:
    executor, run = await restored(world, make)
    world.orders.revoke_answer = answer
    await executor.beat()
    await executor.beat()
    await world.turn("reconcile")
    wait_for_the_outcome(world)
    await world.turn("reconcile", "reap")
    assert await world.state(run) == "RUNNING"


async def test_an_answer_by_way_of_a_heartbeat_counts(world: Any, make: Any) -> None:
    executor, run = await restored(world, make)
    world.orders.down.add(executor.incarnation)
    await executor.beat()
    await executor.beat()
    await world.turn("reconcile")
    assert await world.heartbeat(executor.incarnation, lambda order: "finished") == ["revoke"]
    await world.turn("reap", "reconcile")
    assert await world.state(run) == "RUNNING"
    wait_for_the_outcome(world)
    await world.turn("reconcile")
    assert await world.state(run) == "ORPHANED"


async def test_a_lost_cancel_ends(world: Any, make: Any) -> None:
    executor, run = await restored(world, make)
    await world.cancel(run)
    world.orders.cancel_answer = "finished"
    await executor.beat()
    await executor.beat()
    await world.turn("dispatch", "reconcile")
    assert await world.state(run) == "CANCEL_REQUESTED"
    wait_for_the_outcome(world)
    await world.turn("reconcile")
    assert await world.state(run) == "CANCELED"


@pytest.mark.parametrize("how", ["held", "unanswered", "quarantined", "an older executor"])
async def test_what_the_executor_names_is_not_lost(world: Any, make: Any, how: str) -> None:
    executor, run = await restored(world, make)
    key = world.key(run)
    world.orders.revoke_answer = "finished"
    said: dict[str, Any] = {
        "held": {"held": [key]},
        "unanswered": {"unanswered": [key]},
        "quarantined": {"quarantined": {key: "no"}},
        "an older executor": {"names_all": False},
    }[how]
    for _ in range(3):
        await executor.beat(**said)
        await world.turn("reconcile")
    assert world.orders.revokes == [] and await world.state(run) == "RUNNING"


async def test_a_run_that_was_just_dispatched_is_not_asked_for(world: Any, make: Any) -> None:
    executor = Executor(world, await world.executor())
    await world.apply(make.job())
    [run] = await world.start()
    await world.turn("assign")
    for _ in range(3):
        await executor.beat()
        await world.turn("reconcile")
    assert world.orders.revokes == [] and await world.state(run) == "ASSIGNED"


async def test_a_name_ends_the_doubt(world: Any, make: Any) -> None:
    executor, run = await restored(world, make)
    world.orders.revoke_answer = "finished"
    await executor.beat()
    await executor.beat()
    await world.turn("reconcile")
    wait_for_the_outcome(world)
    await executor.beat(unanswered=[world.key(run)])
    await world.turn("reconcile")
    assert await world.state(run) == "RUNNING"
    assert await world.sql("SELECT 1 FROM scheduler.unresolved_attempts") == []
    assert await world.report(world.key(run), make.outcome()) == "accepted"


async def test_a_result_that_is_refused_for_long_ends_the_run(world: Any, make: Any) -> None:
    executor, run = await restored(world, make)
    refused = {world.key(run): "no partition of relation"}
    await executor.beat(quarantined=refused)
    await world.sql("UPDATE scheduler.unresolved_attempts SET first_at = now() - interval '595 s'")
    await executor.beat(quarantined=refused)
    await world.turn("reconcile")
    assert await world.state(run) == "RUNNING"
    await world.sql("UPDATE scheduler.unresolved_attempts SET first_at = now() - interval '601 s'")
    await executor.beat(quarantined=refused)
    await world.turn("reconcile")
    row = await world.run(run)
    assert (row["state"], row["reason"]) == ("FAILED", "result_refused")
    assert "no partition of relation" in row["error_summary"]
    # The executor sends it again once more: kept beside the run, and final.
    assert await world.report(world.key(run), make.outcome()) == "orphan_result"


async def test_notes_of_runs_that_have_moved_on_are_dropped(world: Any, make: Any) -> None:
    executor, run = await restored(world, make)
    await executor.beat()
    await executor.beat()
    await world.report(world.key(run), make.outcome())
    await world.turn("reconcile")
    assert await world.sql("SELECT 1 FROM scheduler.unresolved_attempts") == []
    assert world.orders.revokes == []
