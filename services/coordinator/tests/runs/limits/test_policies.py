"""Policies of concurrency over schedules and dedupe keys, for runs of every origin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError

KEYED = {"payload_schema": {"type": "object", "properties": {"target": {}}}}
A, B = '{"target": "a"}', '{"target": "b"}'


async def ready(world: Any, make: Any, policy: str, **spec: Any) -> None:
    await world.executor(slots=20)
    concurrency = {"policy": policy, "dedupe_keys": ["target"]}
    await world.apply(make.job(concurrency=concurrency, **{**KEYED, **spec}))


async def trigger(world: Any) -> None:
    spec = {"event_type": "t", "job": "hello", "payload": {"target": "a"}}
    document = {"apiVersion": "toban/v1", "kind": "EventTrigger", "metadata": {"name": "t"}, "spec": spec}
    await world.apply(document)


async def event(world: Any) -> int:
    await world.sql("INSERT INTO scheduler.events (event_type, payload, created_by) VALUES ('t', '{}', 'x')")
    await world.turn("events")
    [row] = await world.sql("SELECT max(id) AS id FROM scheduler.runs_live WHERE origin = 'event'")
    return int(row["id"])


@pytest.mark.seed(49, 136)
async def test_forbid_is_about_equal_keys(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, "forbid")
    [first], [second], [other] = [await world.start(payload_json=p) for p in (A, A, B)]
    await limited.turns(2)
    assert [await world.state(run) for run in (first, second, other)] == ["ASSIGNED", "SKIPPED", "ASSIGNED"]
    assert (await world.run(second))["reason"] == "overlap"


async def test_a_retry_is_not_forbidden(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, "forbid", retry={"max_retries": 1, "backoff_seconds": [0]})
    [first] = await world.start(payload_json=A)
    await limited.turns()
    await limited.end(first, "FAILED")
    await limited.turns()
    assert await world.state(first) == "ASSIGNED" and (await world.run(first))["attempt"] == 2


async def test_queue_runs_one_after_the_other(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, "queue")
    runs = [(await world.start(payload_json=A))[0] for _ in range(4)]
    [other] = await world.start(payload_json=B)
    for run in runs:
        await limited.turns(2)
        assert set(await limited.live()) - {other} == {run}
        await limited.end(run)


async def test_queue_without_keys_is_about_the_job_or_the_schedule(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=9)
    await world.apply(make.job(concurrency={"policy": "queue"}), make.schedule())
    await world.steady()
    await world.turn("fire")
    await world.at(world.now() + timedelta(seconds=20))
    await world.start(count=2)
    await limited.turns(2)
    rows = await world.sql("SELECT origin FROM scheduler.runs_live WHERE dispatched_at IS NOT NULL ORDER BY origin")
    assert [row["origin"] for row in rows] == ["demand", "slot"]


@pytest.mark.seed(49)
async def test_replace_cancels_the_old_run_and_waits_for_its_end(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, "replace")
    [old] = await world.start(payload_json=A)
    await limited.turns()
    [second] = await world.start(payload_json=A)
    await limited.turns(2)
    assert (await world.state(old), await world.state(second)) == ("CANCEL_REQUESTED", "DEFERRED")
    assert (await world.run(old))["cancel_reason"] == f"replaced by run {second}"
    [third] = await world.start(payload_json=A)
    [fourth] = await world.start(payload_json=A)
    await limited.turns(2)
    assert [await world.state(run) for run in (second, third, fourth)] == ["SKIPPED", "SKIPPED", "DEFERRED"]
    assert (await world.run(second))["reason"] == "replaced"
    await limited.end(old, "CANCELED")
    await limited.turns(2)
    assert await world.state(old) == "CANCELED" and await world.state(fourth) == "ASSIGNED"


async def test_a_retry_of_a_replaced_run_does_not_come_back(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, "replace", retry={"max_retries": 3, "backoff_seconds": [0]})
    [old] = await world.start(payload_json=A)
    await limited.turns()
    await limited.end(old, "FAILED")
    [new] = await world.start(payload_json=A)
    await limited.turns(2)
    assert (await world.state(old), await world.state(new)) == ("SKIPPED", "ASSIGNED")


@pytest.mark.seed(130)
async def test_the_same_scope_is_refused_on_demand(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, "reject_same_scope")
    [first] = await world.start(payload_json=A)
    with pytest.raises(TobanError) as refused:
        await world.start(payload_json=A)
    assert refused.value.code is ErrorCode.DUPLICATE_SCOPE and f"run {first}" in refused.value.message
    assert refused.value.detail["run_id"] == first
    with pytest.raises(TobanError) as refused:
        await world.start(payload_json=B, count=2)
    assert refused.value.code is ErrorCode.DUPLICATE_SCOPE
    assert len(await world.sql("SELECT id FROM scheduler.runs_live")) == 1
    await world.finished(first)
    assert await world.start(payload_json=A)


async def test_asking_again_with_the_same_key_is_no_duplicate_scope(world: Any, make: Any) -> None:
    await ready(world, make, "reject_same_scope")
    first = await world.start(payload_json=A, idempotency_key="k")
    assert await world.start(payload_json=A, idempotency_key="k") == first


@pytest.mark.seed(130)
async def test_slots_and_events_of_the_same_scope_are_skipped(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, "reject_same_scope", default_payload={"target": "a"})
    await trigger(world)
    await world.apply(make.schedule())
    [first] = await world.start()
    await limited.turns()
    run = await event(world)
    await limited.turns()
    assert (await world.state(run), (await world.run(run))["reason"]) == ("SKIPPED", "same_scope")
    await limited.end(first)
    run = await event(world)
    await limited.turns()
    assert await world.state(run) == "ASSIGNED"
    await world.steady()
    await world.turn("fire")
    await world.at(world.now() + timedelta(seconds=10))
    await limited.turns()
    rows = await world.sql("SELECT reason FROM scheduler.runs_history WHERE origin = 'slot'")
    assert rows and {row["reason"] for row in rows} == {"same_scope"}
    with pytest.raises(TobanError, match=f"run {run} "):
        await world.start()


@pytest.mark.seed(136)
async def test_the_scope_may_be_a_dedupe_key(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=9)
    await world.apply(make.job(concurrency={"policy": "reject_same_scope", "dedupe_keys": ["scope_id"]}))
    await world.start(scope="account", scope_id="17")
    await world.start(scope="account", scope_id="18")
    with pytest.raises(TobanError, match="17"):
        await world.start(scope="account", scope_id="17")
