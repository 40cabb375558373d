"""Runs for a time of their own: they wait for it, and what is past or too far ahead is refused."""

from datetime import timedelta
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError


@pytest.mark.seed(145)
async def test_a_run_for_later_waits_and_starts_at_its_time(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job())
    due = world.now() + timedelta(minutes=10)
    [run] = await world.start(scheduled_for=due)
    await world.at(due - timedelta(seconds=40))
    await world.turn("assign")
    assert await world.state(run) == "PENDING"
    assert (await world.run(run))["dispatched_at"] is None
    await world.at(due - timedelta(milliseconds=1))
    done = await world.turn("assign")
    assert not world.orders.starts, "an executor may be named for it, but nothing is sent"
    assert done.next_in is not None and 0 <= done.next_in < 0.1, "the loop sleeps until then, not longer"
    await world.at(due)
    await world.turn("assign", "dispatch")
    [(_, order)] = world.orders.starts
    assert order.key.run_id == run
    await world.report(order.key, make.outcome())
    assert await world.state(run) == "SUCCEEDED"


async def test_a_run_that_only_has_an_executors_name_takes_no_slot(world: Any, make: Any) -> None:
    executor = await world.executor(slots=1)
    await world.apply(make.job())
    [later] = await world.start(scheduled_for=world.now() + timedelta(seconds=20))
    await world.turn("assign")
    row = await world.run(later)
    assert (row["state"], str(row["assigned_incarnation"]), row["token"]) == ("ASSIGNED", executor, None)
    [now] = await world.start()
    await world.turn("assign")
    assert [order.key.run_id for _, order in world.orders.starts] == [now]


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (timedelta(seconds=-90), "is in the past (by 0:01:"),
        (timedelta(days=-400), "is in the past (by 400 days"),
        (timedelta(days=367), "is more than 366 days ahead; apply a schedule"),
    ],
)
async def test_times_that_are_refused(world: Any, make: Any, ahead: timedelta, words: str) -> None:
    await world.apply(make.job())
    with pytest.raises(TobanError) as caught:
        await world.start(count=2, scheduled_for=world.now() + ahead)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert "a run of job 'hello'" in caught.value.message
    assert words in caught.value.message
    assert await world.sql("SELECT id FROM scheduler.job_runs") == []


async def test_a_call_that_took_a_while_is_as_good_as_now(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job())
    [run] = await world.start(scheduled_for=world.now() - timedelta(seconds=20))
    await world.turn("assign", "dispatch")
    assert [order.key.run_id for _, order in world.orders.starts] == [run]


async def test_asking_again_with_a_key_is_harmless_however_late(world: Any, make: Any) -> None:
    await world.apply(make.job())
    [run] = await world.start(idempotency_key="k", scheduled_for=world.now() + timedelta(seconds=1))
    late = world.now() - timedelta(days=1)
    assert await world.start(idempotency_key="k", scheduled_for=late) == [run]
    for key in ("other", "nul\0"):
        with pytest.raises(TobanError):
            await world.start(idempotency_key=key, scheduled_for=late)
