"""A schedule whose row cannot be read stops nobody else, says why, and can be mended, paused and taken away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toban_coordinator.decide.schedules import fire as decide
from toban_coordinator.loops.fire import BEHIND_SECONDS
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.fire_plan import DueSchedule, FirePlan
from toban_proto.v1 import coordinator_pb2 as pb
from toban_schedule import ScheduleError
from toban_store.tx import tx

BAD = {
    "an unknown policy": ('spec || \'{"catch_up": {"policy": "latest"}}\'', "catch_up.policy is 'latest'"),
    "no job": ("spec - 'job'", "KeyError: 'job'"),
    "another job": ('spec || \'{"job": "other"}\'', "job 'other'"),
    "another name": ('spec || \'{"name": "x\\"y"}\'', "apply it again"),
    "no object": ("'[1]'", "apply it again"),
    "nothing": ("'null'", "apply it again"),
    "a rule of another type": ("spec - 'interval_seconds' || '{\"cron\": 5}'", "rule: cannot be read"),
    "a payload of another type": ("spec || '{\"payload\": 5}'", "apply it again"),
    "a bound of another type": ("spec || '{\"end\": 5}'", "apply it again"),
}


@asynccontextmanager
async def held(world: Any, name: str) -> AsyncIterator[None]:
    """Somebody edits this schedule."""
    async with tx(world.pool) as t:
        await t.execute("SELECT 1 FROM scheduler.schedules WHERE name = %(n)s FOR UPDATE", {"n": name})
        # PostgreSQL ends a transaction that is idle for half a second.
        stop = asyncio.Event()
        awake = asyncio.create_task(stay_awake(t, stop))
        try:
            yield
        finally:
            stop.set()
            await awake


async def stay_awake(t: Any, stop: asyncio.Event) -> None:
    while not stop.is_set():
        await t.execute("SELECT 1")
        await asyncio.sleep(0.05)


async def spoil(world: Any, value: str) -> None:
    await world.sql(f"UPDATE scheduler.schedules SET spec = {value} WHERE name = 'bad'")


async def fired(world: Any) -> set[str]:
    rows = await world.sql("SELECT DISTINCT schedule_name FROM scheduler.runs_live")
    return {row["schedule_name"] for row in rows}


@pytest.mark.seed(177, 178)
@pytest.mark.parametrize("what", BAD)
async def test_it_stops_no_other_and_says_why(world: Any, make: Any, desk: Any, what: str) -> None:
    value, words = BAD[what]
    await world.apply(make.job(), make.schedule("bad"), *[make.schedule(f"s{n}") for n in range(3)])
    await world.steady()
    await spoil(world, value)
    await world.turn("fire")
    assert await fired(world) == {"s0", "s1", "s2"}
    [row] = await world.sql("SELECT fire_retry_count, last_error, status FROM scheduler.schedules WHERE name = 'bad'")
    assert row["fire_retry_count"] == 1 and row["status"] == "active"
    assert words in row["last_error"]
    for _ in range(5):
        await world.sql("UPDATE scheduler.schedules SET fire_retry_at = NULL")
        await world.turn("fire")
    failed = await desk.get("bad")
    assert failed.status == "failed" and words in failed.status_reason
    page = await world.reader.ListSchedules(pb.ListSchedulesRequest(), None)
    assert len(page.schedules) == 4
    if not what.startswith("another"):
        with pytest.raises(TobanError) as caught:
            await desk.calls.next_slots("bad")
        assert caught.value.code is ErrorCode.SCHEDULE_INVALID


@pytest.mark.parametrize("what", BAD)
async def test_it_can_be_corrected_and_deleted(world: Any, make: Any, desk: Any, what: str) -> None:
    await world.apply(make.job(), make.schedule("bad"))
    await spoil(world, BAD[what][0])
    await desk.passed(20)
    assert (await desk.pause("bad")).status == "paused"
    # The same manifest again: the row is not what it was applied as.
    assert await world.apply(make.schedule("bad")) == [("bad", "updated", 3)]
    assert (await desk.resume("bad")).HasField("next_run_at")
    await world.steady()
    await world.turn("fire")
    assert await fired(world) == {"bad"}
    await spoil(world, BAD[what][0])
    assert await desk.delete("bad") >= 1


async def test_what_an_edit_holds_stops_no_other(world: Any, make: Any) -> None:
    await world.apply(make.job(), *[make.schedule(f"s{n}") for n in range(3)])
    await world.steady()
    async with held(world, "s1"):
        done = await world.turn("fire")
        assert await fired(world) == {"s0", "s2"}
        assert (done.moved, done.next_in) == (6, BEHIND_SECONDS), "it looks again soon, and does not spin"
        done = await world.turn("fire")
        assert (done.moved, done.next_in) == (0, BEHIND_SECONDS)
    done = await world.turn("fire")
    assert await fired(world) == {"s0", "s1", "s2"} and done.next_in > BEHIND_SECONDS


async def test_a_bad_row_that_an_edit_holds_stops_no_other(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.schedule("bad"), make.schedule("good"))
    await world.steady()
    await spoil(world, "spec - 'job'")
    async with held(world, "bad"):
        done = await world.turn("fire")
        assert await fired(world) == {"good"} and done.next_in == BEHIND_SECONDS
    [row] = await world.sql("SELECT fire_retry_count FROM scheduler.schedules WHERE name = 'bad'")
    assert row["fire_retry_count"] == 0


async def test_many_of_one_cause_are_one_line_of_log(world: Any, make: Any, caplog: pytest.LogCaptureFixture) -> None:
    await world.apply(make.job(), make.job("other"), *[make.schedule(f"s{n}") for n in range(30)])
    await world.apply(*[make.schedule(f"o{n}", "other") for n in range(3)])
    await world.apply(make.job(payload_schema={"type": "object", "required": ["n"]}), force=True)
    await world.steady()
    await world.turn("fire")
    assert await fired(world) == {"o0", "o1", "o2"}
    [line] = [record.getMessage() for record in caplog.records if "cannot fire" in record.getMessage()]
    assert "'job': 'hello'" in line and "'schedules': 30" in line and "payload" in line
    assert "'attempt': 1" in line and "'next_try_seconds': 2.0" in line


async def test_of_many_failures_one_with_its_trace_is_told(
    world: Any, make: Any, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    await world.apply(make.job(), *[make.schedule(f"s{n}") for n in range(3)])
    plan = decide.plan

    def odd(schedule: DueSchedule, *given: Any, **named: Any) -> FirePlan:
        if schedule.spec.name == "s1":
            raise ZeroDivisionError("nobody expected this")
        if schedule.spec.name == "s2":
            raise ScheduleError("rule", "cannot be read", "apply it again")
        return plan(schedule, *given, **named)

    monkeypatch.setattr(decide, "plan", odd)
    await world.steady()
    await world.turn("fire")
    [record] = [record for record in caplog.records if "cannot fire" in record.getMessage()]
    assert "'schedules': 2" in record.getMessage() and "'schedule': 's1'" in record.getMessage()
    assert "Traceback" in record.getMessage()
