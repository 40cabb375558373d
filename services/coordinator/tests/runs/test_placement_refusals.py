"""Executors whose labels promise a step that they are not set up for: left out for each run that they refused, and seen by an alert."""

from typing import Any

from toban_coordinator.app.placement.placement_refusals import LEFT_OUT_SECONDS, RECENT_SECONDS, PlacementRefusals
from toban_coordinator.ports.orders import Target
from toban_domain.outcome import AttemptKey
from toban_observability.metrics import samples
from toban_testing.clock import FakeClock


async def test_an_executor_that_is_not_set_up_for_a_step_is_left_out(world: Any, make: Any) -> None:
    """Its labels promise the step. Without that, the least loaded executor would be asked again every 0.2 s."""
    wrong, right = await world.executor(1), await world.executor(2, slots=1)
    world.orders.refuse = lambda order: ("STEP_NOT_HERE", "no engine") if world.orders.starts[-1][0] == wrong else None
    await world.apply(make.job())
    [first, second] = await world.start(count=2)
    await world.sql("UPDATE scheduler.executors SET last_heartbeat_at = now() + interval '1 hour'")
    for _ in range(3):
        await world.sql("UPDATE scheduler.runs_live SET not_before = NULL")
        await world.turn("assign")
    asked = [(executor, order.key.run_id) for executor, order in world.orders.starts]
    assert sorted(executor for executor, _ in asked) == [wrong, right], "no executor is asked twice"
    waits = next(run for executor, run in asked if executor == wrong)
    assert await world.state(waits) == "PENDING" and waits in (first, second)
    assert [value for _, value in samples("toban_executors_misplaced")] == [1]
    # The other one has room again, and gets it.
    await world.finished(next(run for executor, run in asked if executor == right))
    await world.turn("assign")
    assert world.orders.starts[-1][0] == right and await world.state(waits) == "ASSIGNED"


async def test_what_is_left_out_keeps_no_other_run_waiting(world: Any, make: Any) -> None:
    """Other runs of the same job, and of other jobs, go to that executor; the one that it refused comes back to it later."""
    refused: list[int] = []
    world.orders.refuse = lambda order: ("STEP_NOT_HERE", "") if order.key.run_id in refused else None
    await world.executor()
    await world.apply(make.job(), make.job("other"))
    [run] = await world.start()
    refused.append(run)
    await world.turn("assign")
    await world.sql("UPDATE scheduler.executors SET last_heartbeat_at = now() + interval '1 hour'")
    await world.sql("UPDATE scheduler.runs_live SET not_before = NULL")
    others = [*await world.start(), *await world.start("other")]
    await world.turn("assign")
    assert [await world.state(one) for one in (run, *others)] == ["PENDING", "ASSIGNED", "ASSIGNED"]
    refused.clear()
    world.loops["assign"]._work.__self__._refusals._until.clear()
    await world.turn("assign")
    assert await world.state(run) == "ASSIGNED"


async def test_a_refusal_is_forgotten_after_its_time() -> None:
    clock = FakeClock()
    refusals = PlacementRefusals(clock=clock)
    target = Target("a", 7, "127.0.0.1:1")
    refusals.note(AttemptKey(1, 5), target, "NO_SLOT", "")
    assert refusals.left_out() == {}
    refusals.note(AttemptKey(1, 5), target, "STEP_NOT_HERE", "")
    refusals.note(AttemptKey(1, 6), Target("b", 8, ""), "STEP_NOT_HERE", "")
    assert refusals.left_out() == {1: {"a", "b"}}
    await clock.advance(LEFT_OUT_SECONDS)
    assert refusals.left_out() == {}
    assert [value for _, value in samples("toban_executors_misplaced")] == [2]
    await clock.advance(RECENT_SECONDS)
    assert refusals.left_out() == {}
    assert [value for _, value in samples("toban_executors_misplaced")] == [0]
