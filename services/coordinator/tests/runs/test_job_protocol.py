"""What jobs say of themselves, in PostgreSQL: results and their schemas, checkpoints, steps, and where a retry begins."""

from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.app.runs.report_queue import ReportQueue
from toban_coordinator.decide.runs.report import Answer, Report
from toban_coordinator.loops.progress_writer import ProgressWriter
from toban_coordinator.store.executors import executor_fencing
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import Reason, StepResult
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.tx import fenced_tx

STEPS = [{"id": "load", "argv": ["true"]}, {"id": "pack", "argv": ["true"]}, {"id": "send", "argv": ["true"]}]


async def sent(world: Any, make: Any, **spec: Any) -> int:
    await world.executor()
    await world.apply(make.job(**spec))
    [run] = await world.start()
    await world.turn("assign")
    return int(run)


def step(world: Any, index: int, exit_code: int | None = 0) -> StepResult:
    finished = None if exit_code is None else world.now()
    return StepResult(index, world.now(), finished, exit_code, seq_from=2 * index + 1, seq_to=2 * index + 2)


async def report(world: Any, queue: ReportQueue, run: int, outcome: Any) -> Answer:
    answers = await queue.commit(world.incarnations[0], [Report(world.key(run), 2, outcome)])
    return answers[0].answer


async def read(world: Any, run: int) -> pb.Run:
    return await world.reader.GetRun(pb.GetRunRequest(id=run), None)


@pytest.mark.seed(140)
async def test_a_result_is_kept_with_the_run(world: Any, make: Any) -> None:
    run = await sent(world, make)
    outcome = make.outcome(result_json='{"rows":3}', log_ref="s3://b/k")
    assert await report(world, ReportQueue(pool=world.pool), run, outcome) is Answer.ACCEPTED
    found = await read(world, run)
    assert (found.state, found.result_json, found.log_ref) == ("SUCCEEDED", '{"rows": 3}', "s3://b/k")


@pytest.mark.parametrize(
    ("given", "state", "why"),
    [
        ('{"rows":3}', "SUCCEEDED", ""),
        ('{"rows":"3"}', "FAILED", 'result.rows: "3" is not of type "integer"; see `result_schema` of the job'),
        ("7", "FAILED", 'is not of type "object"'),
        ("", "FAILED", "the job gave no result; see `result_schema` of the job"),
    ],
)
async def test_a_result_that_does_not_fit_fails_the_run(
    world: Any, make: Any, given: str, state: str, why: str
) -> None:
    schema = {"type": "object", "properties": {"rows": {"type": "integer"}}, "required": ["rows"]}
    run = await sent(world, make, result_schema=schema)
    [(_, order)] = world.orders.starts
    assert order.result_expected
    outcome = make.outcome(result_json=given, result_expected=True)
    assert await report(world, ReportQueue(pool=world.pool), run, outcome) is Answer.ACCEPTED
    found = await read(world, run)
    assert (found.state, found.reason) == (state, "result_invalid" if why else "")
    assert why in found.error_summary
    # A report whose response was lost comes again, to another coordinator.
    assert await report(world, ReportQueue(pool=world.pool), run, outcome) is Answer.ALREADY_ACCEPTED


async def test_a_large_result_is_checked_in_a_process_of_its_own(world: Any, make: Any) -> None:
    schema = {"type": "array", "items": {"anyOf": [{"type": "string", "minLength": n} for n in range(50, 90)]}}
    run = await sent(world, make, result_schema=schema)
    numbers = ",".join(str(number) for number in range(5000))
    outcome = make.outcome(result_json=f"[{numbers}]", result_expected=True)
    assert await report(world, ReportQueue(pool=world.pool), run, outcome) is Answer.ACCEPTED
    found = await read(world, run)
    assert (found.state, found.reason) == ("FAILED", "result_invalid")


async def test_a_schema_that_is_none_is_refused_when_it_is_applied(world: Any, make: Any) -> None:
    with pytest.raises(TobanError, match=r"spec\.result_schema"):
        await world.apply(make.job(result_schema={"type": "objekt"}))


async def test_a_checkpoint_goes_to_the_next_attempt(world: Any, make: Any) -> None:
    run = await sent(world, make, retry={"max_retries": 1})
    queue = ReportQueue(pool=world.pool)

    async def keep(seq: int, value: str, incarnation: str = "") -> bool:
        return await queue.keep_checkpoint(
            world.key(run), incarnation or world.incarnations[0], seq=seq, value_json=value
        )

    assert await keep(1, '{"at":1}')
    assert await keep(3, '{"at":3}')
    # An earlier one that was on its way for long is answered, and changes nothing.
    assert await keep(2, '{"at":2}')
    assert (await read(world, run)).has_checkpoint
    assert not await keep(4, "4", "00000000-0000-0000-0000-000000000000")
    key = world.key(run)
    await report(world, queue, run, make.outcome("FAILED"))
    assert not await queue.keep_checkpoint(key, world.incarnations[0], seq=5, value_json="5")
    await world.turn("assign")
    orders = [order for _, order in world.orders.starts]
    assert [order.checkpoint_json for order in orders] == ["", '{"at": 3}']
    # The next attempt counts from 1 again.
    assert await keep(1, "null")
    await report(world, queue, run, make.outcome())
    assert not (await read(world, run)).has_checkpoint


@pytest.mark.parametrize("value", ["", "{", '"a\\u0000b"', "1e400", f'"{"x" * 33_000}"'])
async def test_a_checkpoint_that_cannot_be_stored_is_refused(world: Any, make: Any, value: str) -> None:
    run = await sent(world, make)
    with pytest.raises(TobanError, match="32 KiB") as caught:
        await ReportQueue(pool=world.pool).keep_checkpoint(
            world.key(run), world.incarnations[0], seq=1, value_json=value
        )
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.seed(141, 156)
async def test_the_steps_of_a_live_run(world: Any, make: Any) -> None:
    run = await sent(world, make, steps=STEPS)
    await world.report(world.key(run), world.now())
    writer = ProgressWriter(pool=world.pool)
    writer.put_steps(world.incarnations[0], {world.key(run): (step(world, 0), step(world, 1, None))})
    assert await writer.run_once() == 1
    # An earlier word that another coordinator writes later.
    late = ProgressWriter(pool=world.pool)
    late.put_steps(world.incarnations[0], {world.key(run): (step(world, 0, None),)})
    assert await late.run_once() == 0
    found = await read(world, run)
    assert found.phase == "pack"
    assert [(one.id, one.state, one.seq_from) for one in found.steps] == [
        ("load", "succeeded", 1),
        ("pack", "running", 3),
        ("send", "pending", 0),
    ]


@pytest.mark.seed(156)
async def test_the_steps_of_a_run_that_failed(world: Any, make: Any) -> None:
    run = await sent(world, make, steps=STEPS)
    outcome = make.outcome("FAILED", steps=(step(world, 0), step(world, 1, 4)))
    await report(world, ReportQueue(pool=world.pool), run, outcome)
    found = await read(world, run)
    assert found.phase == "pack"
    assert [(one.id, one.state, one.exit_code) for one in found.steps] == [
        ("load", "succeeded", 0),
        ("pack", "failed", 4),
        ("send", "skipped", 0),
    ]


@pytest.mark.parametrize(("where", "first"), [("failed_step", 1), ("first_step", 0)])
async def test_where_a_retry_begins(world: Any, make: Any, where: str, first: int) -> None:
    run = await sent(world, make, steps=STEPS, retry={"max_retries": 1, "from": where})
    await report(
        world, ReportQueue(pool=world.pool), run, make.outcome("FAILED", steps=(step(world, 0), step(world, 1, 4)))
    )
    await world.turn("assign")
    assert [order.first_step for _, order in world.orders.starts] == [0, first]
    world.time.offset = timedelta(seconds=3)
    if first:
        outcome = make.outcome(steps=(step(world, 1), step(world, 2)))
        await report(world, ReportQueue(pool=world.pool), run, outcome)
        assert [one.state for one in (await read(world, run)).steps] == ["skipped", "succeeded", "succeeded"]


def shown(attempt: pb.Attempt) -> list[tuple[int, str, str, int]]:
    return [(one.number, one.id, one.state, one.seq_from) for one in attempt.steps]


async def test_each_attempt_keeps_its_steps(world: Any, make: Any) -> None:
    run = await sent(world, make, steps=STEPS, retry={"max_retries": 1})
    failed = make.outcome("FAILED", steps=(step(world, 0), step(world, 1, 4)))
    await report(world, ReportQueue(pool=world.pool), run, failed)
    await world.turn("assign")
    found = await read(world, run)
    assert shown(found.attempts[0]) == [(1, "load", "succeeded", 1), (2, "pack", "failed", 3)]
    assert shown(found.attempts[1]) == []
    assert [one.state for one in found.steps] == ["pending", "pending", "pending"]
    writer = ProgressWriter(pool=world.pool)
    await world.report(world.key(run), world.now())
    writer.put_steps(world.incarnations[0], {world.key(run): (step(world, 0, None),)})
    await writer.run_once()
    found = await read(world, run)
    assert [shown(attempt) for attempt in found.attempts] == [
        [(1, "load", "succeeded", 1), (2, "pack", "failed", 3)],
        [(1, "load", "running", 1)],
    ]


async def test_a_fenced_attempt_keeps_the_steps_that_were_known(world: Any, make: Any) -> None:
    run = await sent(world, make, steps=STEPS)
    await world.report(world.key(run), world.now())
    writer = ProgressWriter(pool=world.pool)
    writer.put_steps(world.incarnations[0], {world.key(run): (step(world, 0), step(world, 1, None))})
    await writer.run_once()
    wanted = executor_fencing.Fence(incarnation=world.incarnations[0], grant_seq=0, reason="silent")
    async with fenced_tx(world.pool, world.term) as t:
        await executor_fencing.fence(t, [wanted], run_limit=10)
    await world.turn("reap")
    assert await world.state(run) == "PENDING"
    [attempt] = (await read(world, run)).attempts
    assert attempt.state == "LOST"
    assert shown(attempt) == [(1, "load", "succeeded", 1), (2, "pack", "lost", 3)]


async def test_an_attempt_of_an_executor_that_is_off_keeps_the_steps_that_were_known(world: Any, make: Any) -> None:
    run = await sent(world, make, steps=STEPS)
    await world.report(world.key(run), world.now())
    writer = ProgressWriter(pool=world.pool)
    writer.put_steps(world.incarnations[0], {world.key(run): (step(world, 0, None),)})
    await writer.run_once()
    await world.sql("UPDATE scheduler.executors SET state = 'off', off_at = now()")
    await world.turn("reap")
    assert await world.state(run) == "PENDING"
    [attempt] = (await read(world, run)).attempts
    assert shown(attempt) == [(1, "load", "lost", 1)]


@pytest.mark.parametrize("retries", [0, 1])
async def test_an_attempt_that_ended_without_a_list_of_its_steps_keeps_what_was_known(
    world: Any, make: Any, retries: int
) -> None:
    """Its guard died."""
    run = await sent(world, make, steps=STEPS, retry={"max_retries": retries})
    await world.report(world.key(run), world.now())
    writer = ProgressWriter(pool=world.pool)
    writer.put_steps(world.incarnations[0], {world.key(run): (step(world, 0, None),)})
    await writer.run_once()
    await report(world, ReportQueue(pool=world.pool), run, make.outcome("FAILED", reason=Reason.LEASE_LOST))
    [attempt] = (await read(world, run)).attempts
    assert shown(attempt) == [(1, "load", "lost", 1)]


async def test_a_job_of_one_step_has_no_steps_of_its_own(world: Any, make: Any) -> None:
    run = await sent(world, make)
    await report(world, ReportQueue(pool=world.pool), run, make.outcome())
    found = await read(world, run)
    assert (found.phase, len(found.steps)) == ("", 0)
