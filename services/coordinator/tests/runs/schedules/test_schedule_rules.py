"""Every kind of rule from the manifest to the order that an executor gets."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

RULES = [
    {"interval_seconds": 3600},
    {"every_n_minutes": 90},
    {"hourly_at_minute": 20},
    {"daily_at": "03:00", "timezone": "Europe/Berlin"},
    {"daily_at": "03:00:07"},
    {"weekly_at": "mon-fri 03:00", "timezone": "Australia/Lord_Howe"},
    {"weekly_at": "sat-mon 23:30"},
    {"cron": "*/15 8-18 * * MON-FRI", "timezone": "America/New_York"},
    {"cron": "30 */10 * * * *"},
    {"cron": "0 12 ? JAN,MAR-DEC/2 ?"},
    {"cron": "0 6 L * *"},
    {"cron": "0 6 LW * *"},
    {"cron": "0 6 15W * *"},
    {"cron": "0 6 * * MON#1"},
    {"cron": "0 6 * * 5L"},
    {"cron": "H H(0-5) * * *"},
    {"cron": "H/15 * * * *"},
    *({"cron": alias} for alias in ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")),
    {"cron": "@every_minute"},
    {"interval_seconds": 60, "start": "2030-01-01T00:00:00+01:00", "end": "2030-01-01T01:00:00+01:00"},
]


def fits(rule: dict[str, Any], at: datetime) -> bool:
    """What can be told of a slot without this product's arithmetic."""
    local = at.astimezone(ZoneInfo(rule.get("timezone", "UTC")))
    if "interval_seconds" in rule or "every_n_minutes" in rule:
        return at.timestamp() % (rule.get("interval_seconds") or rule["every_n_minutes"] * 60) == 0
    if "daily_at" in rule or "weekly_at" in rule:
        clock = (rule.get("daily_at") or rule["weekly_at"]).split()[-1]
        return f"{local:%H:%M:%S}".startswith(clock)
    return True


@pytest.mark.seed(5, 149, 174, 209, 215)
@pytest.mark.parametrize("rule", RULES, ids=str)
async def test_a_rule_makes_runs_at_its_slots(world: Any, make: Any, rule: dict[str, Any]) -> None:
    await world.executor()
    manifest = make.schedule()
    del manifest["spec"]["interval_seconds"]
    manifest["spec"].update(rule)
    await world.apply(make.job(concurrency={"policy": "allow"}), manifest)
    [row] = await world.sql("SELECT next_run_at, created_at FROM scheduler.schedules")
    slot = row["next_run_at"]
    assert slot > row["created_at"] and fits(rule, slot)
    # The leader looks half a minute ahead: the row is there before the slot, the order goes out at the slot.
    await world.at(slot - timedelta(seconds=20))
    await world.turn("fire", "assign")
    assert world.orders.starts == []
    await world.at(slot)
    await world.turn("assign")
    [(_, order)] = world.orders.starts
    assert order.slot == slot and (await world.run(order.key.run_id))["schedule_name"] == "often"
    await world.turn("fire")
    [row] = await world.sql("SELECT next_run_at, last_run_at FROM scheduler.schedules")
    assert row["last_run_at"] >= slot and row["next_run_at"] > slot and fits(rule, row["next_run_at"])
    ledger = await world.sql("SELECT first_slot, outcome FROM scheduler.fire_ledger ORDER BY first_slot")
    assert (ledger[0]["first_slot"], ledger[0]["outcome"]) == (slot, "fired")


async def test_a_hash_is_of_the_schedule_s_name(world: Any, make: Any) -> None:
    schedules = [make.schedule(f"s{n}", cron="H H * * *") for n in range(20)]
    await world.apply(make.job(), *schedules)
    rows = await world.sql("SELECT name, next_run_at FROM scheduler.schedules")
    times = {row["name"]: row["next_run_at"].astimezone(UTC).strftime("%H:%M") for row in rows}
    assert len(set(times.values())) > 15
    # Applied anew with another detail it keeps its time.
    await world.apply(make.schedule("s0", cron="H H * * *", payload={"x": 1}))
    [row] = await world.sql("SELECT next_run_at FROM scheduler.schedules WHERE name = 's0'")
    assert row["next_run_at"].astimezone(UTC).strftime("%H:%M") == times["s0"]


@pytest.mark.seed(46)
async def test_the_payload_of_a_schedule_is_laid_over_the_default_of_its_job(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(default_payload={"a": 1, "b": {"c": 2}}), make.schedule(payload={"b": 3, "d": 4}))
    await world.steady()
    await world.turn("fire")
    [row, *_] = await world.sql("SELECT payload FROM scheduler.runs_live ORDER BY slot")
    assert row["payload"] == {"a": 1, "b": 3, "d": 4}


@pytest.mark.seed(148)
async def test_runs_have_the_scope_of_their_schedule(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.schedule(scope="account", scope_id="17"))
    await world.steady()
    await world.turn("fire")
    rows = await world.sql("SELECT DISTINCT scope, scope_id FROM scheduler.runs_live")
    assert [(row["scope"], row["scope_id"]) for row in rows] == [("account", "17")]


@pytest.mark.seed(147)
async def test_each_slot_has_the_payload_that_refers_to_it(world: Any, make: Any) -> None:
    """Also those that an edit settles; its group is that of its own payload."""
    await world.executor()
    concurrency = {"dedupe_keys": ["at"]}
    slotted = make.schedule(payload={"at": "${{ slot }}", "x": "${{ schedule.name }}"}, interval_seconds=1)
    await world.apply(make.job(default_payload={"at": "", "b": 1}, concurrency=concurrency), slotted)
    await world.steady()
    await world.turn("fire")
    read = "SELECT slot, payload, concurrency_group FROM scheduler.runs_live ORDER BY slot"
    rows = await world.sql(read)
    assert len(rows) > 2
    await world.sql("UPDATE scheduler.schedules SET next_run_at = date_trunc('second', now()) - interval '600 s'")
    await world.apply(make.schedule(payload={"at": "edited"}, interval_seconds=1))
    settled = [row for row in await world.sql(read) if row["slot"] < rows[0]["slot"]]
    assert len(settled) > 2
    for row in [*rows, *settled]:
        at = row["slot"].astimezone(UTC).isoformat()
        assert row["payload"] == {"at": at, "b": 1, "x": slotted["metadata"]["name"]}
        assert at in row["concurrency_group"]


@pytest.mark.seed(171)
async def test_a_zone_that_changes_moves_the_next_slot_and_an_edit_of_anything_else_keeps_both(
    world: Any, make: Any
) -> None:
    def nightly(**spec: Any) -> dict[str, Any]:
        return make.schedule(cron="0 3 * * *", **spec)

    async def stored() -> tuple[datetime, str]:
        [row] = await world.sql("SELECT next_run_at, spec ->> 'timezone' AS zone FROM scheduler.schedules")
        return row["next_run_at"], row["zone"]

    await world.apply(make.job(), nightly(timezone="Asia/Kathmandu"))
    at, zone = await stored()
    assert (f"{at.astimezone(ZoneInfo('Asia/Kathmandu')):%H:%M}", zone) == ("03:00", "Asia/Kathmandu")
    await world.apply(nightly(timezone="Asia/Kathmandu", payload={"x": 1}))
    assert await stored() == (at, "Asia/Kathmandu")
    await world.apply(nightly(timezone="Australia/Lord_Howe", payload={"x": 1}))
    moved, zone = await stored()
    assert (f"{moved.astimezone(ZoneInfo('Australia/Lord_Howe')):%H:%M}", zone) == ("03:00", "Australia/Lord_Howe")
    assert moved != at
