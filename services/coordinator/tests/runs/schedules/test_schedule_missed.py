"""After an outage: missed slots, and those that are due now, of the same schedules."""

from __future__ import annotations

from typing import Any


async def missed_hour(world: Any, make: Any, policy: str, count: int) -> None:
    """Schedules that missed an hour, of which they catch up the last 200 slots."""
    catch_up = {"catch_up": {"policy": "all", "max": 200}}
    await world.apply(
        make.job(concurrency={"policy": policy}), *(make.schedule(f"s{n:02}", **catch_up) for n in range(count))
    )
    await world.steady()
    await world.sql("UPDATE scheduler.schedules SET next_run_at = next_run_at - interval '1 hour'")


NOW_SLOTS = """
SELECT count(DISTINCT schedule_id) AS n FROM scheduler.run_slots WHERE slot >= %(now)s::timestamptz - interval '10 s'
"""


async def test_the_own_missed_slots_of_a_schedule_do_not_delay_its_slot_of_now(world: Any, make: Any) -> None:
    """After an outage every schedule has missed slots: what is due now goes before all of them, once for each slot."""
    await missed_hour(world, make, "allow", 12)
    now = world.now()
    assert (await world.turn("fire")).next_in == 0.0, "a turn makes only so many rows for missed slots"
    [made] = await world.sql(NOW_SLOTS, now=now)
    [unsettled] = await world.sql("SELECT count(*) AS n FROM scheduler.schedules WHERE next_run_at < %(n)s", n=now)
    assert made["n"] == 12 and unsettled["n"] > 0
    runs = await world.sql("SELECT catch_up FROM scheduler.runs_live WHERE slot >= %(n)s - interval '10 s'", n=now)
    assert not any(row["catch_up"] for row in runs)
    while (await world.turn("fire")).next_in == 0.0:
        pass
    rows = await world.sql(
        "SELECT schedule_id, count(*) AS runs, count(DISTINCT slot) AS slots, max(slot) - min(slot) AS span FROM scheduler.runs_live GROUP BY 1"
    )
    assert len(rows) == 12
    for row in rows:
        assert row["runs"] == row["slots"] == row["span"].total_seconds() // 10 + 1, (
            "each slot of the stretch has one run"
        )
    # Every slot of the hour has a run or is in the ledger, and none is in both.
    [ledger] = await world.sql(
        "SELECT count(*) AS n FROM scheduler.fire_ledger k JOIN scheduler.fire_ledger f ON f.schedule_id = k.schedule_id AND f.outcome = 'fired'"
        " AND f.first_slot BETWEEN k.first_slot AND k.last_slot WHERE k.outcome = 'catch_up'"
    )
    assert ledger["n"] == 0


async def test_an_edit_settles_missed_slots_around_those_that_have_runs(world: Any, make: Any, desk: Any) -> None:
    await missed_hour(world, make, "allow", 12)
    await world.turn("fire")
    [late] = await world.sql("SELECT name FROM scheduler.schedules ORDER BY next_run_at, id DESC LIMIT 1")
    [before] = await world.sql(
        "SELECT count(*) AS n FROM scheduler.runs_live WHERE schedule_name = %(n)s", n=late["name"]
    )
    await desk.pause(late["name"])
    [after] = await world.sql(
        "SELECT count(*) AS n, count(DISTINCT slot) AS slots FROM scheduler.runs_live WHERE schedule_name = %(n)s",
        n=late["name"],
    )
    assert after["n"] == after["slots"] > before["n"]


async def test_a_policy_that_orders_runs_keeps_the_order_of_slots(world: Any, make: Any) -> None:
    await missed_hour(world, make, "queue", 12)
    now = world.now()
    await world.turn("fire")
    [made] = await world.sql(NOW_SLOTS, now=now)
    assert made["n"] < 12
