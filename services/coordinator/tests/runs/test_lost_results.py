"""The success of an attempt that was lost counts until its run is sent again."""

from typing import Any


async def off(world: Any, incarnation: str) -> None:
    await world.sql(
        "UPDATE scheduler.executors SET state = 'off', off_at = now() WHERE incarnation = %(i)s", i=incarnation
    )


async def lost(world: Any, make: Any, **spec: Any) -> tuple[int, Any]:
    """A run whose executor went away, waiting to be sent again, and the key of its lost attempt."""
    incarnation = await world.executor(1, instance="same")
    await world.apply(make.job(**spec))
    [run] = await world.start()
    await world.turn("assign")
    key = world.key(run)
    await off(world, incarnation)
    await world.turn("reap")
    assert await world.state(run) == "PENDING"
    return int(run), key


async def test_the_success_of_a_lost_attempt_counts_until_the_run_is_sent_again(world: Any, make: Any) -> None:
    """Its executor was cut off, or its successor has found the result in the journal: the work is not done twice."""
    run, key = await lost(world, make)
    successor = await world.executor(2, instance="same")
    result = make.outcome()
    assert await world.report(key, result, successor) == "accepted"
    row = await world.run(run)
    assert (row["state"], row["token"], row["lost_count"]) == ("SUCCEEDED", key.token, 1)
    assert (await world.events(run))[-3:] == ["reassigned", "orphaned", "succeeded"]
    await world.turn("assign")
    assert len(world.orders.starts) == 1
    [attempt] = await world.sql("SELECT state FROM scheduler.job_attempts WHERE run_id = %(r)s", r=run)
    assert attempt["state"] == "SUCCEEDED"
    assert await world.report(key, result, successor) == "already_accepted"


async def test_what_is_not_the_success_of_the_last_attempt_does_not_count(world: Any, make: Any) -> None:
    run, first = await lost(world, make)
    stranger = await world.executor(2, instance="another")
    assert await world.report(first, make.outcome(), stranger) == "not_held"
    successor = await world.executor(3, instance="same")
    assert await world.report(first, make.outcome("FAILED"), successor) == "orphan_result"
    assert await world.state(run) == "PENDING"
    await world.turn("assign")
    second = world.key(run)
    assert await world.report(first, make.outcome(), successor) == "orphan_result", "it is sent"
    holder = (await world.run(run))["assigned_incarnation"]
    await off(world, str(holder))
    await world.turn("reap")
    assert second.token > first.token
    assert await world.report(first, make.outcome(), successor) == "orphan_result", "a later attempt was lost too"
    assert await world.state(run) == "PENDING"
