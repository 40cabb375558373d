"""A run from its request to the history, over real PostgreSQL."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.app.runs.start_runs import RunRequest
from toban_domain.errors import ErrorCode, FencedOut, TobanError
from toban_store.tx import tx
from toban_testing.waiting import until_lock_wait


@pytest.mark.seed(53, 76, 126)
async def test_enqueue_assign_report(world: Any, make: Any) -> None:
    executor = await world.executor()
    assert await world.apply(make.job(env={"A": "b"})) == [("hello", "created", 1)]
    runs = await world.start(count=3)
    assert [await world.state(run) for run in runs] == ["PENDING"] * 3
    await world.turn("assign")
    assert [(i, order.key.run_id) for i, order in world.orders.starts] == [(executor, run) for run in runs]
    order = world.orders.starts[0][1]
    assert order.steps[0].body == {"argv": ["/bin/true"]} and order.env == {"A": "b"} and order.log_day
    assert await world.report(world.key(runs[0]), make.outcome()) == "accepted"
    run = await world.run(runs[0])
    assert (run["state"], run["exit_code"], run["token"]) == ("SUCCEEDED", 0, order.key.token)
    assert run["dispatched_at"] <= run["started_at"] <= run["finished_at"]
    assert await world.events(runs[0]) == ["created", "dispatched", "succeeded"]
    attempt = (await world.sql("SELECT * FROM scheduler.job_attempts WHERE run_id = %(r)s", r=runs[0]))[0]
    assert attempt["state"] == "SUCCEEDED" and attempt["outcome"]["kind"] == "SUCCEEDED"
    assert await world.sql("SELECT 1 FROM scheduler.runs_live WHERE id = %(r)s", r=runs[0]) == []


@pytest.mark.seed(42)
async def test_tokens_grow_and_nothing_is_placed_twice(world: Any, make: Any) -> None:
    await world.executor(slots=8)
    await world.apply(make.job())
    await world.start(count=5)
    await world.turn("assign", "assign", "dispatch", "assign")
    tokens = [order.key.token for _, order in world.orders.starts]
    assert len(tokens) == 5 and tokens == sorted(set(tokens)) and tokens[0] > world.term.epoch


async def test_slots_are_kept_full_and_never_overfilled(world: Any, make: Any) -> None:
    await world.executor(1, slots=2)
    await world.executor(2, slots=3)
    await world.apply(make.job())
    runs = await world.start(count=8)
    await world.turn("assign", "assign")
    assert len(world.orders.starts) == 5
    await world.report(world.key(runs[0]), make.outcome())
    await world.turn("assign")
    assert len(world.orders.starts) == 6
    assert sum(1 for i, _ in world.orders.starts if i.endswith("1")) in (2, 3)


@pytest.mark.seed(53, 96, 140)
async def test_started_then_outcome(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    await world.turn("assign")
    assert await world.report(world.key(run), world.now()) == "accepted"
    assert await world.state(run) == "RUNNING"
    assert await world.report(world.key(run), world.now()) == "already_accepted"
    assert await world.report(world.key(run), make.outcome("FAILED", exit_code=3, error_summary="exit 3")) == "accepted"
    row = await world.run(run)
    assert (row["state"], row["exit_code"], row["error_summary"], row["reason"]) == ("FAILED", 3, "exit 3", "exit_code")


async def test_duplicate_reports(world: Any, make: Any) -> None:
    executor = await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    await world.turn("assign")
    key, result = world.key(run), make.outcome()
    assert await world.report(key, result) == "accepted"
    assert await world.report(key, result) == "already_accepted"
    assert await world.report(key, world.now()) == "already_accepted"
    assert await world.report(key, make.outcome("FAILED")) == "orphan_result"
    assert await world.report(key._replace(token=key.token + 1), result, executor) == "not_held"
    assert await world.state(run) == "SUCCEEDED"
    kept = await world.sql("SELECT outcome FROM scheduler.orphan_results WHERE run_id = %(r)s", r=run)
    assert [row["outcome"]["kind"] for row in kept] == ["FAILED"]


@pytest.mark.seed(41)
async def test_a_report_of_another_executor_is_not_held(world: Any, make: Any) -> None:
    await world.executor(1)
    await world.apply(make.job())
    [run] = await world.start()
    await world.turn("assign")
    other = await world.executor(2)
    assert await world.report(world.key(run), make.outcome(), other) == "not_held"
    assert await world.state(run) == "ASSIGNED"


async def test_a_restarted_executor_reports_its_journal(world: Any, make: Any) -> None:
    await world.executor(1, instance="same")
    await world.apply(make.job())
    [run] = await world.start()
    await world.turn("assign")
    later = await world.executor(2, instance="same")
    assert await world.report(world.key(run), make.outcome(), later) == "accepted"
    assert await world.state(run) == "SUCCEEDED"


@pytest.mark.seed(17, 143)
async def test_retry_with_backoff(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(retry={"max_retries": 1, "backoff_seconds": [60]}))
    [run] = await world.start()
    await world.turn("assign")
    first = world.key(run)
    assert await world.report(first, make.outcome("FAILED")) == "accepted"
    row = await world.run(run)
    assert (row["state"], row["attempt"], row["token"]) == ("PENDING", 2, None)
    await world.turn("assign")
    assert len(world.orders.starts) == 1
    world.time.offset = timedelta(seconds=61)
    await world.sql("UPDATE scheduler.executors SET last_heartbeat_at = now() + interval '61 seconds'")
    await world.turn("assign")
    second = world.key(run)
    assert second.token > first.token
    assert await world.report(first, make.outcome("FAILED", exit_code=9)) == "orphan_result"
    assert await world.report(second, make.outcome("TIMED_OUT")) == "accepted"
    assert await world.state(run) == "TIMED_OUT"
    attempts = await world.sql("SELECT state FROM scheduler.job_attempts WHERE run_id = %(r)s ORDER BY token", r=run)
    assert [a["state"] for a in attempts] == ["FAILED", "TIMED_OUT"]


async def test_a_deposed_leader_writes_nothing(world: Any, make: Any, new_term: Any) -> None:
    await world.executor()
    await world.apply(make.job(), make.schedule())
    [run] = await world.start()
    await new_term(2)
    for loop in ("assign", "fire"):
        with pytest.raises(FencedOut):
            await world.turn(loop)
    assert await world.state(run) == "PENDING" and world.orders.starts == []
    assert await world.sql("SELECT 1 FROM scheduler.run_slots") == []


@pytest.mark.seed(55)
async def test_idempotency_keys(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.job("other"))
    [first] = await world.start(idempotency_key="k")
    assert await world.start(idempotency_key="k", count=2) == [first, first]
    assert len(await world.sql("SELECT 1 FROM scheduler.runs_live")) == 1


async def test_an_idempotency_key_stands_for_one_payload(world: Any, make: Any) -> None:
    await world.apply(make.job(default_payload={"a": 1}))
    [first] = await world.start(idempotency_key="k", payload_json='{"n": 1.0}')
    assert await world.start(idempotency_key="k", payload_json='{"a": 1, "n": 1}') == [first]
    words = f"idempotency_key 'k' belongs to run {first}, which has another payload; use another key"
    for payload in ("{}", '{"n": 2}', '{"n": 1, "m": 1}'):
        with pytest.raises(TobanError, match=words) as refused:
            await world.start(idempotency_key="k", payload_json=payload)
        assert refused.value.code is ErrorCode.CONFLICT
    # A new default of the job is no other request.
    await world.apply(make.job(default_payload={"a": 2}))
    assert await world.start(idempotency_key="k", payload_json='{"n": 1}') == [first]
    with pytest.raises(TobanError, match=words):
        await world.start(idempotency_key="k", payload_json='{"n": 2}')


async def test_an_idempotency_key_compares_payloads_as_they_are_stored(world: Any, make: Any) -> None:
    """PostgreSQL keeps 1e23 as a whole number, which is another one in Python."""
    await world.apply(make.job(default_payload={"a": 1}))
    made = {}
    for key, payload, other in (
        ("number", '{"x": 1e23, "y": [-0.0]}', '{"x": 1e24, "y": [0]}'),
        ("boolean", '{"x": true}', '{"x": 1}'),
        ("null", '{"x": null}', '{"y": null}'),
        ("part", '{"x": {"y": 1}}', '{"x": {}}'),
    ):
        [made[key]] = await world.start(idempotency_key=key, payload_json=payload)
        for version in range(2):
            if version:
                await world.apply(make.job(default_payload={"a": key}))
            assert await world.start(idempotency_key=key, payload_json=payload) == [made[key]], (key, version)
            with pytest.raises(TobanError, match=f"idempotency_key '{key}' belongs to run {made[key]}"):
                await world.start(idempotency_key=key, payload_json=other)


async def test_every_request_of_a_call_with_one_key_is_compared(world: Any, make: Any) -> None:
    await world.apply(make.job())
    wanted = [RunRequest(job="hello", idempotency_key="k", payload_json=f'{{"n": {n}}}') for n in (1, 2, 1)]
    with pytest.raises(TobanError, match="which has another payload"):
        await world.service.start(wanted, "admin-cli")
    assert await world.sql("SELECT 1 FROM scheduler.runs_live") == []


async def test_a_key_is_one_of_its_job(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.job("other"), make.job("third"))
    [first] = await world.start(idempotency_key="k")
    [second] = await world.start("other", idempotency_key="k")
    assert len({first, second}) == 2
    assert await world.start("other", idempotency_key="k") == [second] and await world.start(idempotency_key="k") == [
        first
    ]
    # The first job's key is forgotten: the other one has its own still.
    await world.sql(f"DELETE FROM scheduler.run_idempotency WHERE run_id = {first}")
    assert await world.start("other", idempotency_key="k") == [second]
    assert len(await world.sql("SELECT 1 FROM scheduler.runs_live")) == 2


async def test_one_call_may_have_one_key_for_several_jobs(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.job("other"))
    wanted = [RunRequest(job=job, idempotency_key="k") for job in ("hello", "other", "hello")]
    made = await world.service.start(wanted, "admin-cli")
    assert [one.created for one in made] == [True, True, False] and made[0].run_id == made[2].run_id != made[1].run_id
    assert [one.run_id for one in await world.service.start(wanted, "admin-cli")] == [one.run_id for one in made]


async def test_a_key_that_another_job_takes_at_this_moment(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.job("other"))
    [first] = await world.start(idempotency_key="k")
    await world.sql(f"DELETE FROM scheduler.run_idempotency WHERE run_id = {first}")
    async with tx(world.pool) as t:
        await t.execute(f"INSERT INTO scheduler.run_idempotency (key, run_id) VALUES ('k', {first})")
        start = asyncio.create_task(world.start("other", idempotency_key="k"))
        await until_lock_wait(world.sql)
    [second] = await start
    assert second != first and await world.start("other", idempotency_key="k") == [second]


@pytest.mark.seed(127, 140)
async def test_start_refusals(world: Any, make: Any) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "additionalProperties": False}
    await world.apply(
        make.job(payload_schema=schema, default_payload={"n": 1}), make.job("off", enabled=False), make.job("free")
    )
    cases = [
        ({"job": "helo"}, ErrorCode.JOB_NOT_FOUND, "did you mean 'hello'?"),
        ({"job": "off"}, ErrorCode.JOB_DISABLED, "disabled"),
        ({"payload_json": '{"n": 0}'}, ErrorCode.PAYLOAD_INVALID, "payload.n"),
        ({"payload_json": '{"N": 1}'}, ErrorCode.PAYLOAD_INVALID, "'N' is not a known key; did you mean 'n'?"),
        (
            {"payload_json": '{"x": 1, "y": 2}'},
            ErrorCode.PAYLOAD_INVALID,
            "'x' and 'y' are not known keys; known are n",
        ),
        ({"job": "free", "payload_json": r'{"x": "\u0000"}'}, ErrorCode.PAYLOAD_INVALID, "NUL"),
        ({"payload_json": "[1]"}, ErrorCode.PAYLOAD_INVALID, "one JSON object"),
        (
            {"job": "free", "payload_json": '{"x": "%s"}' % ("y" * 40_000)},
            ErrorCode.PAYLOAD_TOO_LARGE,
            "limit is 32768",
        ),
    ]
    for fields, code, words in cases:
        with pytest.raises(TobanError) as caught:
            await world.start(**fields)
        assert caught.value.code is code and words in caught.value.message
    await world.start("free", payload_json=r'{"x": "\\u0000"}')
    [run] = await world.start(payload_json='{"n": 2}')
    assert (await world.run(run))["payload"] == {"n": 2}
    assert len(await world.sql("SELECT 1 FROM scheduler.runs_live")) == 2
