"""Runs with external steps: cancels, limits, turns, bounds of waiting, and steps on executors beside them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.runs.rerun import RerunRequest, RunRepeats
from toban_coordinator.app.runs.start_runs import StartRuns
from toban_proto.v1 import coordinator_pb2 as pb

STEP = {"id": "work", "type": "external", "worker_type": "transcode", "lock_ttl_seconds": 1}
LOCAL = {"id": "local", "argv": ["/bin/true"]}


@pytest.mark.seed(159)
async def test_a_canceled_claim_is_told_and_ends_with_its_acknowledgement(world: Any, make: Any, workers: Any) -> None:
    await world.apply(make.job(steps=[STEP]))
    (run,) = await world.start()
    await world.turn("assign")
    (step,) = await workers.claim()
    assert (await workers.acknowledge(step.key)).code == "RESOURCE_INVALID_STATE"
    await world.cancel(run)
    assert await world.state(run) == "CANCEL_REQUESTED"
    answer = await workers.heartbeats.extend("w1", [step.key])
    assert (answer.lost, answer.cancel) == ((), (step.key,))
    assert await workers.heartbeats.progress("w1", step.key, percentage=50, summary="half") is True
    assert (await workers.acknowledge(step.key)).result == "accepted"
    assert await world.state(run) == "CANCELED"
    assert (await workers.acknowledge(step.key)).result == "already_accepted"
    assert "cancel_timeout" not in await world.events(run)


@pytest.mark.seed(162)
async def test_a_cancel_without_an_acknowledgement_ends_with_the_lock(world: Any, make: Any, workers: Any) -> None:
    await world.apply(make.job(steps=[STEP], cancel={"grace_seconds": 0}))
    (run,) = await world.start()
    await world.turn("assign")
    (step,) = await workers.claim()
    await world.cancel(run)
    # The grace is over: the lock is not extended any more.
    answer = await workers.heartbeats.extend("w1", [step.key])
    assert (answer.lost, answer.cancel) == ((step.key,), (step.key,))
    await workers.locks_end(run, "CANCELED")
    assert "cancel_timeout" in await world.events(run)


async def test_a_canceled_run_that_completes_its_last_step_has_succeeded(world: Any, make: Any, workers: Any) -> None:
    await world.apply(make.job(steps=[STEP]))
    (run,) = await world.start()
    await world.turn("assign")
    (step,) = await workers.claim()
    await world.cancel(run)
    assert (await workers.complete(step.key)).result == "accepted"
    assert await world.state(run) == "SUCCEEDED"


@pytest.mark.seed(157, 163)
async def test_an_offer_is_canceled_at_once(world: Any, make: Any, workers: Any) -> None:
    await world.apply(make.job(steps=[STEP]))
    (run,) = await world.start()
    await world.turn("assign")
    await world.cancel(run)
    assert await world.state(run) == "CANCELED"
    assert await workers.claim() == []


@pytest.mark.seed(138)
async def test_a_step_that_is_not_cancelable_ends_first_and_a_kill_waits_for_nothing(
    world: Any, make: Any, workers: Any
) -> None:
    await world.apply(make.job(steps=[{**STEP, "cancelable": False}, {**STEP, "id": "next"}]))
    first, second = await world.start(count=2)
    await world.turn("assign")
    steps = {step.key.run_id: step for step in await workers.claim(limit=2)}
    await world.cancel(first)
    await world.cancel(second)
    keys = [step.key for step in steps.values()]
    answer = await workers.heartbeats.extend("w1", keys)
    assert (answer.lost, answer.cancel) == ((), ())
    assert (await workers.complete(steps[first].key)).result == "accepted"
    assert await world.state(first) == "CANCELED"
    await world.cancel(second, "kill")
    answer = await workers.heartbeats.extend("w1", [steps[second].key])
    assert (answer.lost, answer.cancel) == ((steps[second].key,), (steps[second].key,))


async def test_a_limit_of_3_holds_with_50_runs_and_a_lost_claim_keeps_its_slot(
    world: Any, make: Any, workers: Any
) -> None:
    await world.apply(make.job(steps=[STEP], concurrency={"limit": 3}))
    runs = await world.start(count=50)
    held = "SELECT count(*) AS n FROM scheduler.runs_live WHERE state = 'WAITING_WORKER'"
    await world.turn("assign")
    assert (await world.sql(held))[0]["n"] == 3
    (lost,) = await workers.claim("dead")
    await workers.locks_end(lost.key.run_id, "PENDING")
    await world.turn("resume", "assign")
    # The lost one is offered again in its own slot, and nobody else has taken it.
    assert (await world.sql(held))[0]["n"] == 3
    assert await world.state(lost.key.run_id) == "WAITING_WORKER"
    done = 0
    async with asyncio.timeout(60):
        while done < 50:
            for step in await workers.claim(limit=50):
                assert (await workers.complete(step.key)).result == "accepted"
                done += 1
            await world.turn("resume", "assign")
            assert (await world.sql(held))[0]["n"] <= 3
    assert {await world.state(run) for run in runs} == {"SUCCEEDED"}


async def test_offers_need_no_executor_while_others_wait_for_one(world: Any, make: Any, workers: Any) -> None:
    await world.apply(make.job("local"), make.job("outside", steps=[STEP]))
    await world.executor(slots=1)
    await world.start("local", count=3)
    await world.turn("assign", "assign")
    (run,) = await world.start("outside")
    async with asyncio.timeout(60):
        while await world.state(run) != "WAITING_WORKER":
            await world.turn("assign")
    assert (await world.sql("SELECT count(*) AS n FROM scheduler.runs_live WHERE state = 'PENDING'"))[0]["n"] == 2


async def test_a_flood_of_one_tenant_does_not_delay_another(world: Any, make: Any, workers: Any) -> None:
    await world.apply(make.job(steps=[STEP]))
    await world.start(count=30, scope="account", scope_id="flood")
    await world.turn("assign")
    (late,) = await world.start(scope="account", scope_id="small")
    await world.turn("assign")
    claimed = [step.key.run_id for _ in range(2) for step in await workers.claim()]
    assert late in claimed


async def test_late_and_long_waiting_offers_end(world: Any, make: Any, workers: Any) -> None:
    await world.apply(
        make.job("late", steps=[STEP], skip_late_after_seconds=60), make.job("long", steps=[STEP], max_wait_seconds=60)
    )
    (late,), (long,), (claimed,) = await world.start("late"), await world.start("long"), await world.start("long")
    await world.turn("assign")
    await world.sql("UPDATE scheduler.runs_live SET started_at = now() WHERE id = %(id)s", id=claimed)
    await world.later(61)
    await world.turn("external")
    assert [await world.state(run) for run in (late, long, claimed)] == ["SKIPPED", "EXPIRED", "WAITING_WORKER"]
    assert (await world.run(late))["reason"] == "late"


@pytest.mark.seed(150)
async def test_steps_on_executors_and_of_workers_follow_each_other_in_one_attempt(
    world: Any, make: Any, workers: Any
) -> None:
    second, last = {**LOCAL, "id": "second"}, {**LOCAL, "id": "last"}
    await world.apply(
        make.job(
            steps=[LOCAL, second, STEP, last],
            concurrency={"limit": 1},
            result_schema={"type": "object", "required": ["frames"]},
        )
    )
    await world.executor()
    run, other = await world.start(count=2)
    await world.turn("assign")
    (_, order), *_ = world.orders.starts
    assert ([step.id for step in order.steps], order.first_step, order.result_expected) == (
        ["local", "second"],
        0,
        False,
    )
    await world.report(world.key(run), make.outcome())
    assert (await world.run(run))["state"] == "PENDING"
    await world.turn("resume", "assign")
    # It has kept its slot of the limit.
    assert [await world.state(one) for one in (run, other)] == ["WAITING_WORKER", "DEFERRED"]
    (step,) = await workers.claim()
    assert step.result_expected is False
    await workers.complete(step.key, {"frames": 1})
    await world.turn("resume", "assign")
    assert [await world.state(one) for one in (run, other)] == ["ASSIGNED", "DEFERRED"]
    order = world.orders.starts[-1][1]
    assert ([step.id for step in order.steps], order.first_step, order.result_expected) == (
        ["local", "second", "work", "last"],
        3,
        True,
    )
    await world.report(world.key(run), make.outcome(result_expected=True))
    row = await world.run(run)
    assert (row["state"], row["attempt"], row["result"]) == ("SUCCEEDED", 1, {"frames": 1})


async def test_a_retry_begins_with_the_first_step_or_the_one_that_failed(world: Any, make: Any, workers: Any) -> None:
    retry = {"max_retries": 1, "backoff_seconds": [0]}
    await world.apply(
        make.job("first", steps=[LOCAL, STEP], retry=retry),
        make.job("failed", steps=[LOCAL, STEP], retry={**retry, "from": "failed_step"}),
    )
    await world.executor()
    (first,), (failed,) = await world.start("first"), await world.start("failed")
    await world.turn("assign")
    for run in (first, failed):
        await world.report(world.key(run), make.outcome())
    await world.turn("assign")
    for step in await workers.claim(limit=2):
        assert (await workers.fail(step.key)).result == "accepted"
    await world.turn("assign")
    assert [await world.state(run) for run in (first, failed)] == ["ASSIGNED", "WAITING_WORKER"]


async def test_a_rerun_begins_with_the_external_step_that_failed(world: Any, make: Any, workers: Any) -> None:
    check, last = {**STEP, "id": "check"}, {**LOCAL, "id": "last"}
    await world.apply(make.job(steps=[LOCAL, STEP, check, last], retry={"max_retries": 1, "backoff_seconds": [0]}))
    await world.executor()
    (run,) = await world.start()
    await world.turn("assign")
    await world.report(world.key(run), make.outcome())
    await world.turn("assign")
    await workers.complete((await workers.claim())[0].key, {"frames": 1})
    await world.turn("assign")
    await workers.fail((await workers.claim())[0].key, retryable=False)
    assert (await world.reader.GetRun(pb.GetRunRequest(id=run), None)).failed_step == 3
    start = StartRuns(
        pool=world.pool, definitions=world.definitions, payloads=PayloadValidator(), fast_path=world.fast_path
    )
    wanted = RerunRequest(run_id=run, from_failed_step=True)
    again = (await RunRepeats(pool=world.pool, start=start).rerun(wanted, "user ada")).run_id
    # A retry is offered to its workers again.
    for end in (workers.fail, workers.complete):
        await world.turn("assign")
        (claim,) = await workers.claim()
        assert (claim.key.run_id, claim.step_id, claim.previous_result) == (again, "check", '{"frames": 1}')
        await end(claim.key)
    await world.turn("assign")
    assert world.orders.starts[-1][1].first_step == 3
    await world.report(world.key(again), make.outcome())
    row = await world.run(again)
    assert (row["state"], row["result"]) == ("SUCCEEDED", {"frames": 1})
