"""repeatable: false and schedulable: false, for runs of every origin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError

A, B = '{"target": "a"}', '{"target": "b"}'
ONCE = {"repeatable": False, "concurrency": {"dedupe_keys": ["target"]}}


def trigger(job: str = "hello") -> dict[str, Any]:
    spec = {"event_type": "t", "job": job, "payload": {"target": "a"}}
    return {"apiVersion": "toban/v1", "kind": "EventTrigger", "metadata": {"name": "t"}, "spec": spec}


async def ended(world: Any, limited: Any, payload: str = A, state: str = "SUCCEEDED", **more: Any) -> int:
    [run] = await world.start(payload_json=payload, **more)
    await limited.turns(2)
    await limited.end(run, state)
    return int(run)


@pytest.mark.seed(129)
async def test_on_demand_a_second_run_is_refused_with_the_first_one_named(world: Any, make: Any, limited: Any) -> None:
    await world.executor()
    await world.apply(make.job(**ONCE))
    await ended(world, limited, state="FAILED")
    done = await ended(world, limited, idempotency_key="k1")
    with pytest.raises(TobanError) as refused:
        await world.start(payload_json=A)
    assert refused.value.code is ErrorCode.NOT_REPEATABLE
    assert refused.value.detail["run_id"] == done
    assert f"run {done} of job 'hello' has SUCCEEDED with the same dedupe keys" in refused.value.message
    # Asked for again by its key, and other keys.
    assert await world.start(payload_json=A, idempotency_key="k1") == [done]
    await ended(world, limited, payload=B)


async def test_it_outlives_the_history_and_a_new_version(world: Any, make: Any, limited: Any) -> None:
    await world.executor()
    await world.apply(make.job(**ONCE))
    await ended(world, limited)
    await world.sql("TRUNCATE scheduler.runs_history")
    await world.apply(make.job(**ONCE, priority=1))
    with pytest.raises(TobanError, match="has SUCCEEDED"):
        await world.start(payload_json=A)
    await world.apply(make.job(concurrency=ONCE["concurrency"]))
    await ended(world, limited)


@pytest.mark.seed(129)
async def test_by_event_and_schedule_it_is_skipped_with_the_reason(world: Any, make: Any, limited: Any) -> None:
    await world.executor()
    await world.apply(make.job(**ONCE), make.schedule(payload={"target": "a"}), trigger())
    done = await ended(world, limited)
    await world.sql("INSERT INTO scheduler.events (event_type, payload, created_by) VALUES ('t', '{}', 'x')")
    await world.turn("events")
    await world.steady()
    await world.turn("fire")
    await world.at(world.now() + timedelta(seconds=20))
    await limited.turns(2)
    skipped = await world.sql("SELECT origin, reason FROM scheduler.job_runs WHERE state = 'SKIPPED' ORDER BY origin")
    assert {(row["origin"], row["reason"]) for row in skipped} == {("event", "repeated"), ("slot", "repeated")}
    told = await world.sql("SELECT DISTINCT message FROM scheduler.job_events WHERE to_state = 'SKIPPED'")
    assert [row["message"] for row in told] == [
        f"run {done} with the same dedupe keys has SUCCEEDED (repeatable: false)"
    ]


async def test_runs_of_other_jobs_leave_no_keys(world: Any, make: Any, limited: Any) -> None:
    await world.executor()
    await world.apply(make.job(concurrency=ONCE["concurrency"]))
    await ended(world, limited)
    await ended(world, limited)
    assert await world.sql("SELECT 1 FROM scheduler.succeeded_keys") == []


@pytest.mark.seed(133)
async def test_schedules_and_triggers_of_a_job_that_is_not_schedulable_are_refused(world: Any, make: Any) -> None:
    with pytest.raises(TobanError) as refused:
        await world.apply(make.job(schedulable=False), make.schedule(), trigger())
    assert [one["path"] for one in refused.value.detail["errors"]] == ["spec.job", "spec.job"]
    assert "job 'hello' has schedulable: false; its runs are started on demand only" in refused.value.message
    await world.apply(make.job(schedulable=False))
    with pytest.raises(TobanError, match="apply that one with schedulable: true"):
        await world.apply(make.schedule())
    await world.apply(make.job(), make.schedule(), trigger())
    with pytest.raises(
        TobanError, match=r"spec.schedulable: false, but the job has schedule .*, trigger t; remove them"
    ):
        await world.apply(make.job(schedulable=False))
