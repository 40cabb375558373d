"""Runs that stay open for long do not hide those behind them, and one bad order or row stops no other."""

from typing import Any

import pytest

from toban_coordinator.loops import dispatch, reap
from toban_coordinator.ports.orders import ORDER_INVALID

OLDER = "UPDATE scheduler.runs_live SET dispatched_at = dispatched_at - interval '60 s'"


async def placed(world: Any, make: Any, count: int, **spec: Any) -> list[int]:
    await world.executor(slots=100)
    await world.apply(make.job(**spec))
    runs = await world.start(count=count)
    await world.turn("assign")
    return list(runs)


async def test_cancels_that_stay_open_do_not_hide_those_behind(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "BATCH", 4)
    runs = await placed(world, make, 10)
    for run in runs:
        await world.cancel(run)
    await world.turn("dispatch", "dispatch", "dispatch")
    assert {order.key.run_id for _, order in world.orders.cancels} == set(runs)


async def test_a_sweep_over_open_cancels_goes_on_at_once_and_then_is_idle(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "BATCH", 4)
    for run in await placed(world, make, 10):
        await world.cancel(run)
    assert [(await world.turn("dispatch")).next_in for _ in range(4)] == [0.0, 0.0, None, 0.0]


async def test_starts_that_stay_unconfirmed_do_not_hide_those_behind(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "BATCH", 4)
    runs = await placed(world, make, 10)
    await world.sql(OLDER)
    world.sender.accepted.clear()
    world.orders.starts.clear()
    await world.turn("dispatch", "dispatch", "dispatch")
    assert {order.key.run_id for _, order in world.orders.starts} == set(runs)


@pytest.mark.parametrize("frozen", [0, 200])
async def test_overdue_runs_with_a_long_grace_do_not_hide_those_behind(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch, frozen: int
) -> None:
    """With 200 seconds in the freezer they are overdue for less time than those behind, and come first all the same."""
    monkeypatch.setattr(reap, "BATCH", 4)
    await world.executor(slots=100)
    slow = {"supported": True, "mode": "kill", "grace_seconds": 3000}
    await world.apply(make.job("patient", timeout_seconds=10, cancel=slow), make.job("prompt", timeout_seconds=10))
    patient, prompt = await world.start("patient", count=9), await world.start("prompt", count=2)
    await world.turn("assign")
    for run in (*patient, *prompt):
        await world.report(world.key(run), world.now())
    ago = "UPDATE scheduler.runs_live SET started_at = now() - make_interval(secs => %(s)s) WHERE job_name = %(j)s"
    await world.sql(ago, s=500, j="patient")
    await world.sql(ago, s=400, j="prompt")
    await world.sql(
        "UPDATE scheduler.job_attempts SET frozen_seconds = %(s)s WHERE run_id = ANY(%(runs)s)", s=frozen, runs=patient
    )
    for _ in range(3):
        await world.turn("reap")
    assert [await world.state(run) for run in prompt] == ["CANCEL_REQUESTED"] * 2
    assert {await world.state(run) for run in patient} == {"RUNNING"}


@pytest.mark.parametrize(("promise", "state"), [("gone", "FAILED"), ("running", "ASSIGNED"), ("finished", "ASSIGNED")])
async def test_an_order_that_cannot_be_sent_fails_its_run_once_the_executor_promises_not_to_start_it(
    world: Any, make: Any, promise: str, state: str
) -> None:
    world.orders.revoke_answer = promise
    world.orders.refuse = lambda order: (ORDER_INVALID, "too large") if order.job_name == "bad" else None
    await world.executor()
    await world.apply(make.job("bad"), make.job("good"))
    [bad], [good] = await world.start("bad"), await world.start("good")
    await world.turn("assign")
    assert (await world.state(bad), await world.state(good)) == (state, "ASSIGNED")
    assert await world.report(world.key(good), make.outcome()) == "accepted"


async def test_a_refusal_that_postgresql_does_not_take_holds_up_no_other(world: Any, make: Any) -> None:
    world.orders.refuse = lambda order: ("DRAINING", "not now")
    await world.executor(slots=10)
    await world.apply(make.job("bad"), make.job("good"))
    await world.sql(
        "ALTER TABLE scheduler.runs_live ADD CHECK (job_name <> 'bad' OR state <> 'PENDING' OR version < 2)"
    )
    [bad], good = await world.start("bad"), await world.start("good", count=3)
    await world.turn("assign")
    assert [await world.state(run) for run in good] == ["PENDING"] * 3
    assert await world.state(bad) == "ASSIGNED"


async def test_reap_leaves_only_the_run_that_postgresql_refuses(world: Any, make: Any) -> None:
    await world.executor(slots=10)
    await world.apply(make.job("bad"), make.job("good"))
    [bad], good = await world.start("bad"), await world.start("good", count=3)
    await world.turn("assign")
    await world.sql("ALTER TABLE scheduler.runs_live ADD CHECK (job_name <> 'bad' OR state <> 'ORPHANED')")
    await world.sql("UPDATE scheduler.executors SET state = 'off', off_at = now()")
    await world.turn("reap")
    assert [await world.state(run) for run in good] == ["PENDING"] * 3
    assert await world.state(bad) == "ASSIGNED"
