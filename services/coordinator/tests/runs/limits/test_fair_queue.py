"""Tenants take turns: in the queue for executors and in the queues of limits."""

from __future__ import annotations

from typing import Any

import pytest

from toban_coordinator.store.placement import runs_assign
from toban_coordinator.store.schedules import schedules
from toban_store.tx import autocommit

FLOOD = (
    "INSERT INTO scheduler.runs_live (definition_id, definition_version, job_name, origin, scheduled_for, scope, scope_id, state, deferred_on,"
    " deferred_weight) SELECT d.id, d.version, d.name, 'demand', now() - interval '1 hour', 'account', 'flood', %(state)s::scheduler.run_state,"
    " %(key)s, 1 FROM scheduler.job_definitions d, generate_series(1, %(runs)s::integer) WHERE d.name = 'hello'"
)


async def flood(world: Any, runs: int, state: str = "PENDING", key: str | None = None) -> None:
    for _ in range(0, runs, 2500):
        await world.sql(FLOOD, runs=min(runs, 2500), state=state, key=key)
    await world.sql("ANALYZE scheduler.runs_live")


async def scopes(world: Any, limited: Any) -> list[str]:
    """Whose runs have been sent, in order."""
    rows = await world.sql(
        "SELECT r.id, r.scope_id FROM scheduler.job_runs r JOIN scheduler.job_attempts a ON a.run_id = r.id ORDER BY a.token"
    )
    return [row["scope_id"] for row in rows]


async def one_by_one(world: Any, limited: Any, count: int) -> list[str]:
    """One run is sent and ends, and then the next one; some more are sent when the runs end so quickly that they wait for the slot."""
    for _ in range(count):
        await limited.turns()
        for run in await limited.live():
            await limited.end(run)
    return await scopes(world, limited)


@pytest.mark.seed(189)
async def test_fifty_thousand_runs_of_one_tenant_delay_another_by_one_run(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=1)
    await world.apply(make.job())
    await flood(world, 50_000)
    await limited.turns()
    for name in ("b", "c"):
        await world.start(scope="account", scope_id=name, count=2)
    for run in await limited.live():
        await limited.end(run)
    sent = await one_by_one(world, limited, 7)
    assert sent[0] == "flood" and sorted(sent[1:4]) == sorted(sent[4:7]) == ["b", "c", "flood"]


async def test_deferred_runs_take_turns_too(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=9)
    await world.apply(make.job(concurrency={"limit": 1}))
    await flood(world, 20_000, "DEFERRED", "job:hello")
    [first] = await world.start(scope="account", scope_id="b")
    await limited.turns()
    [second] = await world.start(scope="account", scope_id="c")
    sent = await one_by_one(world, limited, 4)
    assert sorted(sent[:3]) == ["b", "c", "flood"] and sent[3] == "flood"
    assert await world.state(first) == await world.state(second) == "SUCCEEDED"


async def test_a_scope_with_a_weight_gets_so_many_runs_a_turn(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=1)
    await world.sql("INSERT INTO scheduler.limits (name, value) VALUES ('scope:account/b', 3)")
    await world.apply(make.job())
    await flood(world, 20)
    await world.start(scope="account", scope_id="b", count=9)
    sent = (await one_by_one(world, limited, 12))[:12]
    assert sent.count("b") == 9 and sent.count("flood") == 3


async def test_a_missed_slot_that_is_caught_up_starts_after_what_is_due_now(
    world: Any, make: Any, limited: Any
) -> None:
    await world.executor(slots=1)
    await world.apply(make.job(concurrency={"policy": "allow"}), make.schedule(), make.schedule("now"))
    await world.steady()
    await world.sql(
        "UPDATE scheduler.schedules SET next_run_at = next_run_at - interval '10 minutes' WHERE name = 'often'"
    )
    await world.turn("fire")
    rows = await world.sql("SELECT count(*) AS n FROM scheduler.runs_live WHERE catch_up")
    assert rows[0]["n"] >= 55
    [demand] = await world.start()
    for _ in range(6):
        await limited.turns()
        for run in await limited.live():
            await limited.end(run)
    rows = await world.sql(
        "SELECT r.id, r.catch_up FROM scheduler.job_runs r JOIN scheduler.job_attempts a ON a.run_id = r.id ORDER BY a.token"
    )
    late = [row["catch_up"] for row in rows]
    assert late == sorted(late) and late[-1] and demand in [row["id"] for row in rows if not row["catch_up"]]


async def test_slots_that_are_due_now_get_their_runs_before_missed_ones(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed = {f"missed-{n}" for n in range(16)}
    await world.apply(make.job(), make.schedule("now"), *(make.schedule(name) for name in sorted(missed)))
    await world.steady()
    await world.sql(
        "UPDATE scheduler.schedules SET next_run_at = next_run_at - interval '1 hour' WHERE name LIKE 'missed-%%'"
    )
    written: list[list[str]] = []
    fire = schedules.fire

    async def noted(t: Any, plans: Any) -> Any:
        written.append([plan.schedule.spec.name for plan in plans])
        return await fire(t, plans)

    monkeypatch.setattr(schedules, "fire", noted)
    turn = await world.turn("fire")
    names = [name for batch in written for name in batch]
    assert names[0] == "now" and turn.next_in == 0.0, "a turn makes only so many rows for missed slots"
    assert 0 < len(missed & set(names)) < len(missed)
    # What becomes due between two turns goes before the rest.
    await world.sql("UPDATE scheduler.schedules SET next_run_at = now() + interval '1 s' WHERE name = 'now'")
    written.clear()
    await world.turn("fire")
    assert written[0] == ["now"]
    while (await world.turn("fire")).next_in == 0.0:
        pass
    assert {name for batch in written for name in batch} >= missed - set(names)


async def test_a_read_gives_as_many_runs_as_there_are_however_they_are_spread(
    world: Any, make: Any, limited: Any
) -> None:
    await world.apply(make.job())
    await flood(world, 500)
    for name in "abc":
        await world.start(scope="account", scope_id=name)
    async with autocommit(world.pool) as t:
        found, *_ = await runs_assign.due_runs(t, world.now(), limit=100)
        assert len(found) >= 100 and {run.scope_id for run in found} == {"a", "b", "c", "flood"}
        behind, *_ = await runs_assign.due_runs(t, world.now(), limit=2, after=("account", "b"))
        assert {run.scope_id for run in behind} == {"c", "flood"}
        again, *_ = await runs_assign.due_runs(t, world.now(), limit=3, after=("account", "flood"))
        assert {run.scope_id for run in again} >= {"a", "b", "c"}
