"""Steps of external workers: offers, claims, ends of claims, and locks that are not extended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toban_coordinator.app.external.claim_ends import EndOfStep
from toban_coordinator.app.external.external_claims import ExternalClaims
from toban_coordinator.decide.external.external import Answer
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey, OutcomeKind
from toban_runtime.clock import SystemClock

STEP = {"id": "work", "type": "external", "worker_type": "transcode", "lock_ttl_seconds": 1}


@pytest.mark.seed(154)
async def test_a_step_is_offered_claimed_and_completed_without_any_executor(
    world: Any, make: Any, workers: Any
) -> None:
    await world.apply(make.job(steps=[STEP]))
    (run,) = await world.start(payload_json='{"file": "a.mov"}')
    await world.turn("assign")
    assert await world.state(run) == "WAITING_WORKER"
    (step,) = await workers.claim()
    assert (step.key.run_id, step.job, step.step_id, step.payload) == (run, "hello", "work", '{"file": "a.mov"}')
    row = await world.run(run)
    assert (row["locked_by"], row["started_at"] is not None, row["token"]) == ("w1", True, step.key.token)
    assert await workers.claim() == []
    assert await workers.complete(step.key, {"frames": 3}) == Answer("accepted")
    row = await world.run(run)
    assert (row["state"], row["result"]) == ("SUCCEEDED", {"frames": 3})
    assert await world.events(run) == ["created", "offered", "claimed", "succeeded"]
    (attempt,) = await world.sql("SELECT * FROM scheduler.job_attempts WHERE run_id = %(id)s", id=run)
    assert (attempt["worker"], attempt["state"], attempt["incarnation"]) == ("w1", "SUCCEEDED", None)


@pytest.mark.seed(164)
async def test_a_second_complete_of_a_token_is_idempotent_and_another_result_is_refused(
    world: Any, make: Any, workers: Any
) -> None:
    await world.apply(make.job(steps=[STEP]))
    await world.start()
    await world.turn("assign")
    (step,) = await workers.claim()
    assert (await workers.complete(step.key, 1)).result == "accepted"
    assert (await workers.complete(step.key, 1)).result == "already_accepted"
    assert (await workers.complete(step.key, 2)).code == "CLAIM_LOST"
    assert (await workers.complete(step.key, 1, worker="w2")).code == "CLAIM_LOST"
    assert (await workers.fail(step.key)).code == "CLAIM_LOST"


async def test_both_completes_of_a_token_in_one_call_have_one_effect(world: Any, make: Any, workers: Any) -> None:
    await world.apply(make.job(steps=[STEP]))
    (run,) = await world.start()
    await world.turn("assign")
    (step,) = await workers.claim()
    done = EndOfStep(key=step.key, kind=OutcomeKind.SUCCEEDED)
    answers = await workers.ends.end("w1", [done, done])
    assert [answer.result for answer in answers] == ["accepted", "already_accepted"]
    assert (await world.events(run)).count("succeeded") == 1


@pytest.mark.seed(163)
async def test_claims_of_two_coordinators_take_each_step_once(world: Any, make: Any, workers: Any) -> None:
    await world.apply(make.job(steps=[STEP]))
    runs = await world.start(count=40)
    await world.turn("assign")
    other = ExternalClaims(pool=world.pool, clock=SystemClock())
    found = await asyncio.gather(
        *(
            claims.claim(f"w{n}", "transcode", limit=5, wait_seconds=0)
            for n in range(6)
            for claims in (workers.claims, other)
        )
    )
    taken = [step.key.run_id for steps in found for step in steps]
    assert sorted(taken) == sorted(runs)
    assert len({step.key.token for steps in found for step in steps}) == 40


async def test_a_waiting_claim_is_woken_by_an_offer(world: Any, make: Any, workers: Any) -> None:
    await world.apply(make.job(steps=[STEP]))
    waiting = asyncio.create_task(workers.claim(wait=30))
    other = asyncio.create_task(workers.claim("w9", wait=0.0, worker_type="render"))
    assert await other == []
    (run,) = await world.start()
    await world.turn("assign")
    workers.claims.wake()
    assert [step.key.run_id for step in await waiting] == [run]


@pytest.mark.seed(164, 165)
async def test_a_worker_that_dies_loses_its_claim_and_its_result_is_refused_after_the_next_offer(
    world: Any, make: Any, workers: Any
) -> None:
    await world.apply(make.job(steps=[STEP], retry={"max_retries": 1}))
    (run,) = await world.start()
    await world.turn("assign")
    (first,) = await workers.claim()
    await workers.locks_end(run, "PENDING")
    row = await world.run(run)
    assert (row["attempt"], row["lost_count"]) == (1, 1)
    assert (await workers.complete(first.key)).code == "CLAIM_LOST"
    await world.turn("assign")
    (again,) = await workers.claim("w2")
    assert (again.key.run_id, again.key.token > first.key.token, again.attempt) == (run, True, 1)
    # The zombie: its heartbeats, progress and results are refused, also with the name of the new worker.
    assert (await workers.heartbeats.extend("w1", [first.key])).lost == (first.key,)
    assert (await workers.complete(first.key)).code == "CLAIM_LOST"
    assert (await workers.complete(first.key, worker="w2")).code == "CLAIM_LOST"
    with pytest.raises(TobanError) as caught:
        await workers.heartbeats.progress("w1", first.key, percentage=5, summary="")
    assert caught.value.code is ErrorCode.CLAIM_LOST
    assert (await workers.complete(again.key, worker="w2")).result == "accepted"
    assert await world.state(run) == "SUCCEEDED"


@pytest.mark.seed(155)
async def test_losses_are_bounded_by_max_lost(world: Any, make: Any, workers: Any) -> None:
    await world.apply(make.job(steps=[STEP], max_lost=0))
    (run,) = await world.start()
    await world.turn("assign")
    assert await workers.claim()
    await workers.locks_end(run, "EXPIRED")
    assert (await world.run(run))["reason"] == "lost"


@pytest.mark.seed(166)
async def test_heartbeats_keep_a_claim(world: Any, make: Any, workers: Any) -> None:
    await world.apply(make.job(steps=[STEP]))
    (run,) = await world.start()
    await world.turn("assign")
    (step,) = await workers.claim()
    async with asyncio.timeout(60):
        # Twice as long as the lock.
        for _ in range(10):
            answer = await workers.heartbeats.extend("w1", [step.key])
            assert (answer.lost, answer.cancel) == ((), ())
            await world.turn("external")
            await asyncio.sleep(0.25)
    assert (await workers.complete(step.key)).result == "accepted"
    assert await world.state(run) == "SUCCEEDED"


async def test_a_change_of_the_leader_between_claim_and_complete_changes_nothing(
    world: Any, make: Any, workers: Any, new_term: Any
) -> None:
    await world.apply(make.job(steps=[STEP]))
    (run,) = await world.start()
    await world.turn("assign")
    (step,) = await workers.claim()
    await world.sender.close()
    world.take(await new_term(2))
    await world.turn("assign", "external")
    assert (await workers.complete(step.key)).result == "accepted"
    assert await world.state(run) == "SUCCEEDED"


async def test_a_failure_uses_a_retry_unless_the_worker_says_that_none_helps(
    world: Any, make: Any, workers: Any
) -> None:
    await world.apply(make.job(steps=[STEP], retry={"max_retries": 2, "backoff_seconds": [0]}))
    (run,) = await world.start()
    await world.turn("assign")
    (first,) = await workers.claim()
    assert (await workers.fail(first.key)).result == "accepted"
    assert await world.state(run) == "PENDING"
    await world.turn("assign")
    (second,) = await workers.claim()
    assert second.attempt == 2
    assert (await workers.fail(second.key, retryable=False)).result == "accepted"
    row = await world.run(run)
    assert (row["state"], row["reason"], row["error_summary"]) == ("FAILED", "worker_failed", "no luck")


async def test_a_result_that_does_not_fit_fails_the_attempt(world: Any, make: Any, workers: Any) -> None:
    await world.apply(make.job(steps=[STEP], result_schema={"type": "object", "required": ["rows"]}))
    runs = await world.start(count=2)
    await world.turn("assign")
    steps = await workers.claim(limit=2)
    assert all(step.result_expected for step in steps)
    answer = await workers.complete(steps[0].key, {"lines": 1})
    assert (answer.result, answer.code) == ("accepted", "RESULT_INVALID")
    assert "rows" in answer.message
    assert (await world.run(steps[0].key.run_id))["reason"] == "result_invalid"
    assert (await workers.complete(steps[1].key, {"rows": 1})).code == ""
    assert sorted([await world.state(run) for run in runs]) == ["FAILED", "SUCCEEDED"]
    assert (await workers.complete(steps[1].key, "x" * 40_000)).code == "INVALID_ARGUMENT"


@pytest.mark.seed(132)
async def test_the_timeout_of_a_step_ends_it_also_while_its_worker_sends_heartbeats(
    world: Any, make: Any, workers: Any
) -> None:
    await world.apply(make.job(steps=[{**STEP, "lock_ttl_seconds": 60, "timeout_seconds": 1}]))
    (run,) = await world.start()
    await world.turn("assign")
    (step,) = await workers.claim()
    assert step.timeout_seconds == 1
    assert (await workers.heartbeats.extend("w1", [step.key])).lost == ()
    await workers.locks_end(run, "TIMED_OUT")
    assert (await workers.heartbeats.extend("w1", [step.key])).lost == (step.key,)
    assert (await workers.complete(step.key)).code == "CLAIM_LOST"


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda w: w.claim(worker="a b"), "is not a name"),
        (lambda w: w.claim(worker_type="A"), "write it as `worker_type` of the step"),
        (lambda w: w.claim(limit=501), "use 1 to 500"),
        (lambda w: w.claim(wait=31), "use 0 to 30"),
        (lambda w: w.heartbeats.extend("w", [AttemptKey(1, 1)] * 1001), "the limit is 1000"),
        (lambda w: w.heartbeats.progress("w", AttemptKey(1, 1), percentage=101, summary=""), "use 0 to 100"),
        (lambda w: w.ends.end("", []), "is not a name"),
    ],
)
async def test_a_wrong_argument_is_named(workers: Any, call: Any, what: str) -> None:
    with pytest.raises(TobanError, match=what) as caught:
        await call(workers)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


async def test_nothing_is_claimed_in_a_cluster_that_is_not_settled(world: Any, make: Any, workers: Any) -> None:
    await world.apply(make.job(steps=[STEP]))
    await world.start()
    await world.turn("assign")
    (before,) = await world.sql("SELECT settled_timeline FROM scheduler.leader")
    await world.sql("UPDATE scheduler.leader SET settled_timeline = settled_timeline + 1")
    assert await workers.claim() == []
    await world.sql("UPDATE scheduler.leader SET settled_timeline = %(t)s", t=before["settled_timeline"])
    assert len(await workers.claim()) == 1
