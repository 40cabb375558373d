"""A schedule whose fire takes longer than a fenced transaction may: it is cut or waits, and the others fire."""

from typing import Any

import pytest

from toban_coordinator.loops.fire_progress import rows_of
from toban_coordinator.store.schedules import schedules
from toban_store.errors import TooLong

pytestmark = pytest.mark.usefixtures("production_bounds")

# A fenced transaction has 200 ms.
SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep({seconds}) WHERE NEW.schedule_name LIKE 'slow%%';
    RETURN NEW;
END $$
"""
TRIGGER = "CREATE TRIGGER slow BEFORE INSERT ON scheduler.runs_live FOR EACH ROW EXECUTE FUNCTION slow()"


async def slow_down(world: Any, seconds: float) -> None:
    await world.sql(SLOW.format(seconds=seconds))
    await world.sql(TRIGGER)


async def fired(world: Any) -> dict[str, int]:
    rows = await world.sql("SELECT schedule_name AS name, count(*) AS runs FROM scheduler.runs_live GROUP BY 1")
    return {row["name"]: row["runs"] for row in rows}


async def test_a_long_backlog_of_slots_is_cut_to_what_fits(world: Any, make: Any, desk: Any) -> None:
    often = {"catch_up": {"policy": "all", "max": 30}}
    await world.apply(make.job(), make.schedule("slow", **often), make.schedule("s1"), make.schedule("s2"))
    await desk.passed(300)
    await slow_down(world, 0.02)
    made: dict[str, int] = {}
    for _ in range(5):
        await world.turn("fire")
        made = await fired(world)
        if made.get("slow", 0) >= 30:
            break
        # The machine was so busy that one slot took too long.
        await world.sql("UPDATE scheduler.schedules SET fire_retry_at = NULL")
    assert made["slow"] >= 30 and {"s1", "s2"} <= made.keys()
    slots = await world.sql(
        "SELECT count(*) AS n, count(DISTINCT slot) AS different FROM scheduler.runs_live WHERE schedule_name = 'slow'"
    )
    assert slots[0]["n"] == slots[0]["different"] == made["slow"]
    [row] = await world.sql(
        "SELECT next_run_at > now() AS ahead, fire_retry_at, last_error FROM scheduler.schedules WHERE name = 'slow'"
    )
    assert row == {"ahead": True, "fire_retry_at": None, "last_error": ""}


async def test_one_slot_that_never_fits_waits_with_its_reason_and_stops_no_other(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.schedule("slow"), *[make.schedule(f"s{n}") for n in range(3)])
    await world.steady()
    await slow_down(world, 2)
    for _ in range(7):
        await world.turn("fire")
        await world.sql("UPDATE scheduler.schedules SET fire_retry_at = NULL")
    assert (await fired(world)).keys() == {"s0", "s1", "s2"}
    [row] = await world.sql("SELECT status, fire_retry_count, last_error FROM scheduler.schedules WHERE name = 'slow'")
    assert (row["status"], row["fire_retry_count"]) == ("active", 0), "a slow database is no fault of a schedule"
    assert "one slot alone takes too long" in row["last_error"]
    await world.sql("DROP TRIGGER slow ON scheduler.runs_live")
    await world.turn("fire")
    assert "slow" in await fired(world)


async def test_after_a_write_that_took_too_long_the_next_ones_are_smaller(
    world: Any, make: Any, desk: Any, monkeypatch: Any
) -> None:
    rows, fire = [], schedules.fire

    async def counted(t: Any, plans: Any) -> Any:
        rows.append(sum(map(rows_of, plans)))
        return await fire(t, plans)

    monkeypatch.setattr(schedules, "fire", counted)
    await world.apply(make.job(), *[make.schedule(f"slow{n}", interval_seconds=600) for n in range(40)])
    await desk.passed(10)
    # Forty runs take 400 ms, more than a transaction may.
    await slow_down(world, 0.01)
    await world.turn("fire")
    assert len(await fired(world)) == 40
    written, first = len(rows), rows[0]
    await desk.passed(5)
    await world.turn("fire")
    # A schedule and its run, and shortly before a slot of the clock the run of the next one, too.
    assert first in (80, 120) and rows[written] <= first // 2, "the size that fitted is kept"


SLOW_THEN_BAD = """
CREATE SEQUENCE scheduler.tries;
GRANT USAGE ON SEQUENCE scheduler.tries TO PUBLIC;
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.schedule_name = 'bad' THEN
        IF nextval('scheduler.tries') > 2 THEN
            RAISE EXCEPTION 'its name is bad';
        END IF;
        PERFORM pg_sleep(2);
    END IF;
    RETURN NEW;
END $$
"""


async def test_one_slot_that_takes_long_and_is_refused_then_stops_no_other(world: Any, make: Any) -> None:
    """Slow together with the others and alone; the next try is refused."""
    bad = make.schedule("bad", interval_seconds=600)
    await world.apply(make.job(), bad, *[make.schedule(f"s{n}", interval_seconds=600) for n in range(2)])
    await world.steady()
    await world.sql(SLOW_THEN_BAD)
    await world.sql(TRIGGER)
    await world.turn("fire")
    assert (await fired(world)).keys() == {"s0", "s1"}
    [row] = await world.sql("SELECT status, fire_retry_count, last_error FROM scheduler.schedules WHERE name = 'bad'")
    assert (row["status"], row["fire_retry_count"]) == ("active", 1)
    assert "its name is bad" in row["last_error"]


async def test_a_database_that_is_slow_for_all_fails_the_turn(world: Any, make: Any) -> None:
    await world.apply(make.job(), *[make.schedule(f"slow{n}") for n in range(8)])
    await world.steady()
    await slow_down(world, 2)
    with pytest.raises(TooLong):
        await world.turn("fire")
    rows = await world.sql("SELECT count(*) AS waiting FROM scheduler.schedules WHERE fire_retry_at IS NOT NULL")
    assert rows[0]["waiting"] <= 5
