"""What happens when executors refuse, fall silent or go away, and when somebody cancels."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.store.executors import freezes
from toban_coordinator.store.executors.freezes import FreezeNote
from toban_coordinator.store.placement import runs_assign
from toban_domain.errors import ErrorCode, FencedOut, TobanError
from toban_store.tx import autocommit


async def off(world: Any, incarnation: str) -> None:
    await world.sql(
        "UPDATE scheduler.executors SET state = 'off', off_at = now() WHERE incarnation = %(i)s", i=incarnation
    )


async def sent(world: Any, make: Any, **spec: Any) -> int:
    await world.executor()
    await world.apply(make.job(**spec))
    [run] = await world.start()
    await world.turn("assign")
    return int(run)


@pytest.mark.parametrize("refusal", ["NO_SLOT", "DRAINING", "LEASE_EXPIRED", "TOMBSTONE"])
async def test_a_refused_start_goes_back(world: Any, make: Any, refusal: str) -> None:
    world.orders.refuse = lambda order: (refusal, "not now")
    run = await sent(world, make)
    row = await world.run(run)
    assert (row["state"], row["token"], row["attempt"], row["assigned_incarnation"]) == ("PENDING", None, 1, None)
    assert row["not_before"] > row["created_at"]
    world.orders.refuse = lambda order: None
    world.time.offset = timedelta(seconds=1)
    await world.turn("assign")
    tokens = [order.key.token for _, order in world.orders.starts]
    assert tokens == sorted(set(tokens)) and len(tokens) == 2
    attempts = await world.sql("SELECT state FROM scheduler.job_attempts WHERE run_id = %(r)s ORDER BY token", r=run)
    assert [a["state"] for a in attempts] == ["REVOKED", "DISPATCHED"]


async def test_a_job_that_cannot_start_fails(world: Any, make: Any) -> None:
    world.orders.refuse = lambda order: ("PROGRAM_NOT_ALLOWED", "/bin/true is not on the list")
    run = await sent(world, make)
    row = await world.run(run)
    assert (row["state"], row["reason"]) == ("FAILED", "spawn_failed")
    assert row["error_summary"] == "PROGRAM_NOT_ALLOWED: /bin/true is not on the list"


@pytest.mark.parametrize("refusal", ["STALE_EPOCH", "WRONG_INCARNATION"])
async def test_refusals_that_prove_nothing_move_nothing(world: Any, make: Any, refusal: str) -> None:
    world.orders.refuse = lambda order: (refusal, "")
    run = await sent(world, make)
    assert await world.state(run) == "ASSIGNED"


@pytest.mark.seed(112)
async def test_what_was_not_delivered_goes_out_again(world: Any, make: Any) -> None:
    incarnation = await world.executor()
    world.orders.down.add(incarnation)
    await world.apply(make.job(priority=7))
    [run] = await world.start()
    await world.turn("assign", "dispatch")
    assert world.orders.starts == [] and await world.state(run) == "ASSIGNED"
    world.orders.down.clear()
    world.time.offset = timedelta(seconds=3)
    await world.turn("dispatch", "dispatch")
    assert len(world.orders.starts) == 1
    [row] = await world.sql("SELECT token FROM scheduler.runs_live")
    order = world.orders.starts[0][1]
    assert order.key.token == row["token"]
    assert order.may_wait and order.priority == 7, "its slot may have gone to another run"


async def test_an_accepted_start_is_not_believed_for_ever(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    await world.turn("assign")
    await world.sql("UPDATE scheduler.runs_live SET dispatched_at = dispatched_at - interval '60 s'")
    await world.turn("dispatch")
    assert len(world.orders.starts) == 1
    world.sender.accepted[world.key(run)] -= 60
    await world.turn("dispatch")
    assert [order.key for _, order in world.orders.starts] == [world.key(run)] * 2


@pytest.mark.seed(86)
async def test_only_fitting_fresh_and_undrained_executors_get_work(world: Any, make: Any) -> None:
    await world.executor(1)
    gpu = await world.executor(2, labels={"gpu": "yes"})
    await world.executor(3, labels={"gpu": "yes"}, instance="drained")
    await world.sql("INSERT INTO scheduler.executor_drains (instance) VALUES ('drained')")
    await world.executor(4, labels={"gpu": "yes"}, instance="stale")
    await world.sql(
        "UPDATE scheduler.executors SET last_heartbeat_at = now() - interval '3 s' WHERE instance = 'stale'"
    )
    await world.executor(5, labels={"gpu": "yes"}, instance="twice")
    await world.executor(6, labels={"gpu": "yes"}, instance="twice")
    await world.apply(make.job(selector={"labels": {"gpu": "yes"}}), make.job("plain"))
    await world.start(count=30)
    [plain] = await world.start("plain")
    await world.turn("assign", "assign")
    placed = [(to, order.job_name) for to, order in world.orders.starts]
    assert placed.count((gpu, "hello")) == 4 and plain in [order.key.run_id for _, order in world.orders.starts]
    assert {to for to, name in placed if name == "hello"} == {gpu}


async def test_what_no_executor_fits_holds_up_no_other(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(selector={"labels": {"gpu": "yes"}}, priority=9), make.job("plain"))
    await world.start(count=60)
    await world.start("plain", count=2)
    await world.turn("assign", "assign")
    assert [order.job_name for _, order in world.orders.starts] == ["plain", "plain"]


async def test_a_version_that_nothing_fits_holds_up_no_later_one(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(selector={"labels": {"gpu": "yes"}}))
    [old] = await world.start()
    await world.turn("assign")
    await world.apply(make.job())
    [new] = await world.start()
    await world.turn("assign")
    assert [await world.state(run) for run in (old, new)] == ["PENDING", "ASSIGNED"]


@pytest.mark.seed(101)
async def test_orphans_repeat_until_max_lost(world: Any, make: Any) -> None:
    await world.apply(make.job(max_lost=2))
    [run] = await world.start()
    for number in (1, 2, 3):
        incarnation = await world.executor(number)
        await world.turn("assign")
        await off(world, incarnation)
        await world.turn("reap")
    row = await world.run(run)
    assert (row["state"], row["reason"], row["lost_count"], row["attempt"]) == ("EXPIRED", "lost", 2, 1)
    assert (await world.events(run)).count("orphaned") == 3 and len(world.orders.starts) == 3
    attempts = await world.sql("SELECT state FROM scheduler.job_attempts WHERE run_id = %(r)s", r=run)
    assert [a["state"] for a in attempts] == ["LOST"] * 3


async def test_the_late_result_of_an_orphan_counts(world: Any, make: Any) -> None:
    run = await sent(world, make)
    await world.sql("UPDATE scheduler.runs_live SET state = 'ORPHANED'")
    assert await world.report(world.key(run), make.outcome()) == "accepted"
    assert await world.state(run) == "SUCCEEDED"


async def test_a_lost_outcome_repeats_without_a_retry(world: Any, make: Any) -> None:
    run = await sent(world, make)
    assert await world.report(world.key(run), make.outcome("FAILED", reason="lease_lost")) == "accepted"
    assert await world.state(run) == "ORPHANED"
    await world.turn("reap")
    row = await world.run(run)
    assert (row["state"], row["attempt"], row["lost_count"]) == ("PENDING", 1, 1)


async def test_runs_named_ahead_leave_an_executor_that_is_off(world: Any, make: Any) -> None:
    incarnation = await world.executor()
    await world.apply(make.job(), make.schedule())
    await world.steady()
    await world.turn("fire", "assign")
    await off(world, incarnation)
    await world.turn("reap")
    rows = await world.sql("SELECT state::text AS state, lost_count FROM scheduler.runs_live")
    assert [(row["state"], row["lost_count"]) for row in rows] == [("PENDING", 0)] * 3


@pytest.mark.seed(157, 160)
async def test_cancel_what_waits(world: Any, make: Any) -> None:
    await world.apply(make.job())
    [run] = await world.start()
    await world.cancel(run)
    row = await world.run(run)
    assert (row["state"], row["reason"]) == ("CANCELED", "canceled")
    for mode, verb in (("", "cancelled"), ("kill", "killed")):
        with pytest.raises(TobanError, match=f"is CANCELED already and cannot be {verb}: it has ended") as caught:
            await world.cancel(run, mode)
        assert caught.value.code is ErrorCode.RESOURCE_INVALID_STATE
    with pytest.raises(TobanError) as caught:
        await world.cancel(123456)
    assert caught.value.code is ErrorCode.RUN_NOT_FOUND


async def test_cancel_what_is_named_ahead(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(), make.schedule())
    await world.steady()
    await world.turn("fire", "assign")
    [row, *_] = await world.sql("SELECT id FROM scheduler.runs_live ORDER BY slot")
    await world.cancel(row["id"])
    assert await world.state(row["id"]) == "CANCELED"


@pytest.mark.seed(126, 144)
@pytest.mark.parametrize(
    ("kind", "fields", "state"),
    [
        ("CANCELED", {}, "CANCELED"),
        ("CANCELED", {"tree_empty": False}, "FAILED"),
        ("SUCCEEDED", {}, "SUCCEEDED"),
        ("FAILED", {}, "FAILED"),
        ("TIMED_OUT", {}, "TIMED_OUT"),
        ("FAILED", {"reason": "forced_shutdown"}, "CANCELED"),
    ],
)
async def test_cancel_what_runs(world: Any, make: Any, kind: str, fields: dict[str, Any], state: str) -> None:
    run = await sent(world, make, retry={"max_retries": 3}, cancel={"grace_seconds": 3})
    await world.report(world.key(run), world.now())
    await world.cancel(run)
    assert await world.state(run) == "CANCEL_REQUESTED"
    await world.cancel(run)
    await world.turn("dispatch", "dispatch")
    [(_, order)] = world.orders.cancels
    assert (order.key, order.mode, order.grace_seconds, order.reason) == (world.key(run), "kill", 3.0, "test")
    assert await world.report(world.key(run), make.outcome(kind, **fields)) == "accepted"
    assert await world.state(run) == state


async def test_a_cancel_of_what_the_executor_does_not_know(world: Any, make: Any) -> None:
    run = await sent(world, make)
    world.orders.cancel_answer = "unknown"
    await world.cancel(run)
    world.orders.revoke_answer = "running"
    await world.turn("dispatch")
    assert await world.state(run) == "CANCEL_REQUESTED"
    world.orders.revoke_answer = "gone"
    world.loops["dispatch"]._work.__self__._asked.clear()
    await world.turn("dispatch")
    assert await world.state(run) == "CANCELED"


async def test_a_fence_proves_a_cancel(world: Any, make: Any) -> None:
    run = await sent(world, make)
    await world.cancel(run)
    await off(world, world.incarnations[0])
    await world.turn("reap")
    assert await world.state(run) == "CANCELED"


@pytest.mark.seed(134)
async def test_cancel_not_supported(world: Any, make: Any) -> None:
    run = await sent(world, make, cancel={"supported": False})
    with pytest.raises(TobanError) as caught:
        await world.cancel(run)
    assert caught.value.code is ErrorCode.CANCEL_UNSUPPORTED
    assert await world.state(run) == "ASSIGNED"


async def test_far_beyond_its_timeout(world: Any, make: Any) -> None:
    run = await sent(world, make, timeout_seconds=10, cancel={"grace_seconds": 5})
    await world.report(world.key(run), world.now())
    await world.later(70)
    await world.turn("reap")
    assert await world.state(run) == "RUNNING"
    await world.later(80)
    await world.turn("reap")
    assert await world.state(run) == "CANCEL_REQUESTED"


async def test_time_in_the_freezer_is_not_beyond_the_timeout(world: Any, make: Any) -> None:
    run = await sent(world, make, timeout_seconds=10, cancel={"grace_seconds": 5})
    await world.report(world.key(run), world.now())
    executor = (await world.run(run))["assigned_incarnation"]
    note = FreezeNote(turns=2, seconds=100.0)
    await freezes.note(world.pool, str(executor), {world.key(run): note})
    await world.later(170)
    await world.turn("reap")
    assert await world.state(run) == "RUNNING"
    await world.later(180)
    await world.turn("reap")
    assert await world.state(run) == "CANCEL_REQUESTED"


async def test_no_timeout_is_held_against_a_run_before_its_executor_has_sent_a_heartbeat(world: Any, make: Any) -> None:
    """After an outage: the job may have been frozen all the time."""
    run = await sent(world, make, timeout_seconds=10, cancel={"grace_seconds": 5})
    await world.report(world.key(run), world.now())
    world.time.offset = timedelta(seconds=600)
    await world.turn("reap")
    assert await world.state(run) == "RUNNING"


@pytest.mark.seed(155)
async def test_max_wait(world: Any, make: Any) -> None:
    await world.apply(make.job(max_wait_seconds=30))
    [run] = await world.start()
    await world.turn("reap")
    assert await world.state(run) == "PENDING"
    world.time.offset = timedelta(seconds=31)
    await world.turn("reap")
    row = await world.run(run)
    assert (row["state"], row["reason"]) == ("EXPIRED", "max_wait")


async def test_a_fence_under_an_answer_reaches_the_leader(world: Any, make: Any, new_term: Any) -> None:
    world.orders.refuse = lambda order: ("NO_SLOT", "")
    await world.executor()
    await world.apply(make.job())
    await world.start()
    world.orders.block[world.incarnations[0]] = asyncio.Event()
    await world.loops["assign"]._work()
    await new_term(2)
    world.orders.block[world.incarnations[0]].set()
    await world.sender.idle()
    with pytest.raises(FencedOut):
        await world.turn("dispatch")


async def test_partitions_are_made(world: Any) -> None:
    assert (await world.turn("prune")).moved == 0
    await world.sql("DROP TABLE scheduler.job_events_" + (world.now() + timedelta(days=7)).strftime("%Y%m%d"))
    assert (await world.turn("prune")).moved == 1


async def test_a_run_that_never_started_ended_when_it_was_canceled(world: Any, make: Any) -> None:
    await world.apply(make.job())
    [run] = await world.start()
    await world.cancel(run)
    row = await world.run(run)
    assert (row["state"], row["started_at"]) == ("CANCELED", None)
    assert row["created_at"] <= row["finished_at"]


async def test_a_program_that_could_not_be_started_leaves_no_start(world: Any, make: Any) -> None:
    run = await sent(world, make)
    await world.report(world.key(run), make.outcome("FAILED", reason="spawn_failed", started_at=None, exit_code=None))
    row = await world.run(run)
    assert (row["state"], row["started_at"]) == ("FAILED", None)
    assert row["finished_at"] >= row["dispatched_at"]


async def test_a_job_that_runs_for_long_does_not_hold_the_smallest_token(world: Any, make: Any) -> None:
    """Executors refuse and forget what lies below the smallest token whose start is not confirmed."""
    await world.executor()
    await world.apply(make.job())
    long, brief = await world.start(count=2)
    await world.turn("assign")
    async with autocommit(world.pool) as t:
        [load] = await runs_assign.executor_loads(t)
    assert load.smallest_token == world.key(long).token
    await world.report(world.key(long), world.now())
    async with autocommit(world.pool) as t:
        [load] = await runs_assign.executor_loads(t)
    assert (load.held, load.smallest_token) == (2, world.key(brief).token)
