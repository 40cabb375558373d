"""Runs whose jobs continue without a lease: they wait ORPHANED for a report, an operator, or their time (docs/fencing.md 3.7)."""

from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.app.cluster.audit_log import list_audit
from toban_coordinator.app.executors.lease_grants import LeaseGrants
from toban_coordinator.app.runs.declare_lost import DeclareLost
from toban_coordinator.app.runs.job_reads import JobReads
from toban_coordinator.decide.runs.report import Answer
from toban_coordinator.server.to_proto import run_details_to_pb
from toban_coordinator.store.cluster import cluster_stats
from toban_coordinator.store.executors import executor_fencing, executors
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import Reason
from toban_runtime.clock import SystemClock
from toban_store.tx import autocommit, fenced_tx

CONTINUE = {"on_lease_loss": "continue", "idempotent": True, "lost_after_seconds": 600}


async def orphaned(world: Any, make: Any, *, run_limit: int = 500, **spec: Any) -> int:
    """A run whose executor was fenced after it had started."""
    incarnation = await world.executor(instance="i1")
    await world.apply(make.job(**{**CONTINUE, **spec}))
    [run] = await world.start()
    await world.turn("assign")
    await world.report(world.key(run), world.now())
    wanted = executor_fencing.Fence(incarnation=incarnation, grant_seq=0, reason="no grant for 10.51 s")
    async with fenced_tx(world.pool, world.term) as t:
        assert (await executor_fencing.fence(t, [wanted], run_limit=run_limit)).incarnations
    return int(run)


async def waits(world: Any, run: int) -> bool:
    [row] = await world.sql("SELECT orphaned_until FROM scheduler.runs_live WHERE id = %(r)s", r=run)
    return row["orphaned_until"] is not None


async def test_a_fenced_run_waits_until_its_time_has_passed(world: Any, make: Any) -> None:
    run = await orphaned(world, make)
    await world.turn("reap")
    assert await world.state(run) == "ORPHANED"
    [row] = await world.sql(
        "SELECT extract(epoch FROM orphaned_until - now())::float AS left FROM scheduler.runs_live WHERE id = %(r)s",
        r=run,
    )
    assert 500 < row["left"] <= 600
    await world.sql("UPDATE scheduler.runs_live SET orphaned_until = now() WHERE id = %(r)s", r=run)
    await world.turn("reap")
    after = await world.run(run)
    assert (after["state"], after["lost_count"], after["token"]) == ("PENDING", 1, None)


@pytest.mark.parametrize("how", ["freeze", "kill", ""])
async def test_other_jobs_do_not_wait(world: Any, make: Any, how: str) -> None:
    spec = {"on_lease_loss": how} if how else {}
    incarnation = await world.executor()
    await world.apply(make.job(**spec))
    [run] = await world.start()
    await world.turn("assign")
    wanted = executor_fencing.Fence(incarnation=incarnation, grant_seq=0, reason="x")
    async with fenced_tx(world.pool, world.term) as t:
        await executor_fencing.fence(t, [wanted])
    assert not await waits(world, run)
    await world.turn("reap")
    assert await world.state(run) == "PENDING"


async def test_a_run_beyond_the_limit_of_a_fence_waits_as_well(world: Any, make: Any) -> None:
    run = await orphaned(world, make, run_limit=0)
    assert await world.state(run) == "RUNNING"
    await world.turn("reap")
    assert await world.state(run) == "ORPHANED" and await waits(world, run)


async def test_attested_death_proves_that_nothing_runs_so_nothing_waits(world: Any, make: Any) -> None:
    incarnation = await world.executor()
    await world.apply(make.job(**CONTINUE))
    [run] = await world.start()
    await world.turn("assign")
    await world.sql("UPDATE scheduler.executors SET attested_reason = 'the node has booted since'")
    wanted = executor_fencing.Fence(incarnation=incarnation, grant_seq=0, reason="attested")
    async with fenced_tx(world.pool, world.term) as t:
        await executor_fencing.fence(t, [wanted])
    assert not await waits(world, run)


@pytest.mark.parametrize(
    ("boot", "previous", "silent", "ends"),
    [
        ("other", False, 4, True),
        ("other", True, -60, False),
        ("boot", True, 0, True),
        ("boot", False, 4, False),
    ],
)
async def test_a_successor_that_attests_the_death_later_ends_the_wait(
    world: Any, make: Any, boot: str, previous: bool, silent: int, ends: bool
) -> None:
    """Another boot does so only when the one before was silent: it may be a clone beside it."""
    run = await orphaned(world, make)
    await world.sql("UPDATE scheduler.executors SET last_heartbeat_at = now() - make_interval(secs => %(s)s)", s=silent)
    new = executors.Registration(
        incarnation="00000000-0000-4000-8000-000000000099",
        instance="i1",
        node_id="i1",
        boot_id=boot,
        pid=1,
        grpc_host="h",
        grpc_port=1,
        slots=1,
        previous=world.incarnations[0] if previous else "",
    )
    await executors.register(world.pool, new, key_hash=b"", lease_ms=10_000)
    await executors.attest(world.pool, new)
    assert await waits(world, run) != ends


async def test_its_witness_ends_the_wait(world: Any, make: Any) -> None:
    run = await orphaned(world, make)
    assert not await executors.attest_own(world.pool, world.incarnations[0], executors.WITNESSED), "it is off already"
    assert not await waits(world, run)


async def test_a_late_result_is_accepted_while_the_run_waits(world: Any, make: Any) -> None:
    run = await orphaned(world, make)
    assert await world.report(world.key(run), make.outcome()) is Answer.ACCEPTED
    assert await world.state(run) == "SUCCEEDED"


async def test_a_late_loss_ends_the_wait(world: Any, make: Any) -> None:
    """The guard ended the job with its executor: nothing runs, so nothing is waited for."""
    run = await orphaned(world, make)
    lost = make.outcome("FAILED", reason=Reason.LEASE_LOST, tree_empty=True)
    assert await world.report(world.key(run), lost) is Answer.ACCEPTED
    assert not await waits(world, run)
    await world.turn("reap")
    assert await world.state(run) == "PENDING"


async def test_a_result_after_the_run_was_sent_again_is_kept_and_not_applied(world: Any, make: Any) -> None:
    run = await orphaned(world, make)
    key = world.key(run)
    await world.sql("UPDATE scheduler.runs_live SET orphaned_until = now() WHERE id = %(r)s", r=run)
    await world.turn("reap")
    await world.executor(2)
    await world.turn("assign")
    assert await world.report(key, make.outcome(), world.incarnations[0]) is Answer.ORPHAN_RESULT
    assert await world.state(run) == "ASSIGNED"


async def test_an_operator_declares_it_lost(world: Any, make: Any) -> None:
    run = await orphaned(world, make)
    lost = DeclareLost(pool=world.pool)
    await lost.declare(run, reason="host-a has burnt down", actor="admin-cli")
    assert (await world.events(run))[-1] == "declared_lost"
    entry, *_ = (await list_audit(world.pool)).rows
    assert (entry["action"], entry["target"], entry["actor"], entry["reason"]) == (
        "declare_run_lost",
        f"run {run}",
        "admin-cli",
        "host-a has burnt down",
    )
    with pytest.raises(TobanError, match="is ORPHANED and waits for no report") as again:
        await lost.declare(run, reason="", actor="admin-cli")
    assert again.value.code is ErrorCode.RESOURCE_INVALID_STATE
    await world.turn("reap")
    assert await world.state(run) == "PENDING"


async def test_what_does_not_wait_cannot_be_declared_lost(world: Any, make: Any) -> None:
    await world.apply(make.job())
    [run] = await world.start()
    lost = DeclareLost(pool=world.pool)
    with pytest.raises(TobanError, match="is PENDING and waits for no report"):
        await lost.declare(run, reason="", actor="admin-cli")
    with pytest.raises(
        TobanError, match="there is no run 999; `toban run list` shows the runs that are kept"
    ) as unknown:
        await lost.declare(999, reason="", actor="admin-cli")
    assert unknown.value.code is ErrorCode.RUN_NOT_FOUND
    assert [row["action"] for row in (await list_audit(world.pool)).rows] == ["run.start", "job.create"]


async def test_the_run_says_why_it_waits(world: Any, make: Any) -> None:
    run = await orphaned(world, make)
    shown = run_details_to_pb(await JobReads(pool=world.pool, clock=SystemClock()).get_run(run))
    assert "was fenced at" in shown.waiting and f"toban run lost {run}" in shown.waiting
    left = shown.orphaned_until.ToDatetime(world.now().tzinfo) - world.now()
    assert timedelta(minutes=8) < left <= timedelta(minutes=10)


async def test_waiting_runs_hide_no_others(world: Any, make: Any) -> None:
    """The leader's loop reads a page of orphans: those that wait are not on it."""
    first = await orphaned(world, make)
    await world.sql("UPDATE scheduler.job_definition_versions SET spec = spec - 'on_lease_loss'")
    other = await world.executor(2)
    [run] = await world.start()
    await world.sql("UPDATE scheduler.runs_live SET state = 'ASSIGNED', token = 5, log_day = current_date, assigned_incarnation = %(i)s,"
                    " dispatched_at = now() WHERE id = %(r)s", i=other, r=run)  # fmt: skip
    wanted = executor_fencing.Fence(incarnation=other, grant_seq=0, reason="x")
    async with fenced_tx(world.pool, world.term) as t:
        await executor_fencing.fence(t, [wanted])
    await world.turn("reap")
    assert (await world.state(first), await world.state(run)) == ("ORPHANED", "PENDING")


async def test_a_run_that_waits_is_not_stuck(world: Any, make: Any) -> None:
    """The alert on runs that do not move is about those that nothing holds back."""
    run = await orphaned(world, make)
    await world.sql("UPDATE scheduler.executors SET off_at = now() - interval '5 minutes'")

    async def oldest() -> float:
        async with autocommit(world.pool) as t:
            [group] = await cluster_stats.held(t)
        return float(group.oldest)

    assert await oldest() == 0
    await world.sql("UPDATE scheduler.runs_live SET orphaned_until = NULL WHERE id = %(r)s", r=run)
    assert await oldest() > 200


async def test_an_executor_that_is_off_hears_what_it_runs_in_vain(world: Any, make: Any) -> None:
    run = await orphaned(world, make)
    key, incarnation = world.key(run), world.incarnations[0]
    grants = LeaseGrants(pool=world.pool)
    beat = executors.Beat(incarnation=incarnation, echo=0)
    waiting = await grants.heartbeat(beat, [key])
    assert (waiting.grant, waiting.updates.not_held) == (None, ())
    await DeclareLost(pool=world.pool).declare(run, reason="", actor="admin-cli")
    await world.turn("reap")
    assert (await grants.heartbeat(beat, [key])).updates.not_held == (key,)


async def test_a_cancel_ends_a_run_that_waits_and_its_processes(world: Any, make: Any) -> None:
    run = await orphaned(world, make)
    key, incarnation = world.key(run), world.incarnations[0]
    await world.cancel(run)
    assert await world.state(run) == "CANCELED"
    answer = await LeaseGrants(pool=world.pool).heartbeat(executors.Beat(incarnation=incarnation, echo=0), [key])
    assert answer.updates.not_held == (key,)
