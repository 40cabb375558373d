"""Cancels: the way that a job names, and an operator's kill."""

from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError


async def sent(world: Any, make: Any, **spec: Any) -> int:
    await world.executor()
    await world.apply(make.job(**spec))
    [run] = await world.start()
    await world.turn("assign")
    return int(run)


async def test_a_mode_that_is_none_is_refused(world: Any, make: Any) -> None:
    run = await sent(world, make)
    with pytest.raises(TobanError, match="'politely' is not a mode of a cancel; use cooperative or kill") as caught:
        await world.cancel(run, "politely")
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.seed(134)
async def test_a_cooperative_cancel_goes_out_as_such(world: Any, make: Any) -> None:
    run = await sent(world, make, cancel={"mode": "cooperative", "grace_seconds": 3})
    await world.cancel(run)
    await world.turn("dispatch")
    [(_, order)] = world.orders.cancels
    assert (order.mode, order.grace_seconds, order.force) == ("cooperative", 3.0, False)


@pytest.mark.seed(65)
async def test_an_operator_kills_what_is_being_canceled_and_the_audit_tells(world: Any, make: Any) -> None:
    run = await sent(world, make, cancel={"mode": "cooperative", "grace_seconds": 600})
    await world.cancel(run)
    await world.turn("dispatch")
    await world.cancel(run, "kill")
    await world.turn("dispatch")
    await world.cancel(run, "kill")
    await world.turn("dispatch")
    orders = [order for _, order in world.orders.cancels]
    assert [(order.mode, order.force) for order in orders] == [("cooperative", False), ("kill", True)]
    assert "kill_requested" in await world.events(run)
    actions = await world.sql("SELECT action, target, actor, reason FROM scheduler.admin_action_log")
    assert {tuple(action.values()) for action in actions} >= {("run.kill", f"run {run}", "admin-cli", "test")}
    assert await world.state(run) == "CANCEL_REQUESTED"


async def test_only_a_kill_ends_what_may_not_be_canceled(world: Any, make: Any) -> None:
    run = await sent(world, make, cancel={"supported": False})
    with pytest.raises(TobanError, match=f"toban run kill {run}") as caught:
        await world.cancel(run)
    assert caught.value.code is ErrorCode.CANCEL_UNSUPPORTED
    await world.cancel(run, "kill")
    assert await world.state(run) == "CANCEL_REQUESTED"
    events = await world.events(run)
    assert "kill_requested" in events and "cancel_requested" not in events
