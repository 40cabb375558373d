"""Slots become runs: once, on time, with a ledger row each; missed ones by the policy of their schedule."""

import asyncio
import itertools
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.decide.schedules import fire as decide
from toban_coordinator.loops.fire_progress import WRITE_ROWS, rows_of
from toban_coordinator.store.schedules import schedules, schedules_edit
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.fire_plan import FirePlan, RunTemplate, Skip
from toban_store.tx import fenced_tx, tx

ROWS = "SELECT to_jsonb(s) FROM scheduler.schedules s UNION ALL SELECT to_jsonb(l) FROM scheduler.fire_ledger l"


async def slots(world: Any) -> list[dict[str, Any]]:
    return await world.sql(
        "SELECT slot, state::text AS state, reason FROM scheduler.job_runs WHERE origin = 'slot' ORDER BY slot"
    )


async def ledger(world: Any) -> list[tuple[str, int]]:
    rows = await world.sql("SELECT outcome, slots FROM scheduler.fire_ledger ORDER BY first_slot")
    return [(row["outcome"], row["slots"]) for row in rows]


async def missed(world: Any, seconds: int) -> None:
    """Lets the schedules look as if nobody had led for that long."""
    await world.sql(
        "UPDATE scheduler.schedules SET next_run_at = to_timestamp(floor(extract(epoch FROM now() - make_interval(secs => %(s)s)) / 10) * 10)",
        s=seconds,
    )


@pytest.mark.seed(62, 83)
async def test_several_slots_ahead_once(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await world.steady()
    await world.turn("fire", "fire")
    found = await slots(world)
    assert len(found) == 3 and all(row["state"] == "PENDING" for row in found)
    assert [b["slot"] - a["slot"] for a, b in itertools.pairwise(found)] == [timedelta(seconds=10)] * 2
    assert await ledger(world) == [("fired", 1)] * 3
    [row] = await world.sql("SELECT next_run_at, last_run_at FROM scheduler.schedules")
    assert row["last_run_at"] == found[-1]["slot"] and row["next_run_at"] == found[-1]["slot"] + timedelta(seconds=10)


@pytest.mark.seed(83, 175, 210)
async def test_two_passes_at_once_make_one_run_a_slot(world: Any, make: Any, new_term: Any) -> None:
    await world.apply(make.job(), *[make.schedule(f"s{n}") for n in range(20)])
    await world.steady()
    await asyncio.gather(*(world.loops["fire"]._work() for _ in range(4)))
    assert len(await slots(world)) == 60
    assert len(await world.sql("SELECT 1 FROM scheduler.run_slots")) == 60


@pytest.mark.parametrize("stale", ["the slot was settled", "the schedule was edited"])
async def test_a_plan_holds_for_one_slot_of_one_version(world: Any, make: Any, stale: str) -> None:
    await world.apply(make.job(), make.schedule())
    until = world.now() + timedelta(minutes=1)
    async with fenced_tx(world.pool, world.term) as t:
        [due] = await schedules.due(t, world.now(), until, limit=9)
        slots = [due.next_run_at + timedelta(seconds=10 * n) for n in range(4)]
        made_from = RunTemplate(payload="{}")
        skip = Skip(first=slots[0], last=slots[1], slots=2, outcome="late", message="")
        first = FirePlan(schedule=due, template=made_from, fires=tuple(slots[:3]), skips=(), next_run_at=slots[3])
        later = FirePlan(schedule=due, template=made_from, fires=(), skips=(skip,), next_run_at=slots[2])
        if stale == "the slot was settled":
            assert (await schedules.fire(t, [first])).made == 3
        else:
            await t.execute("UPDATE scheduler.schedules SET version = version + 1")
        before = await t.fetch_all(ROWS)
        assert await schedules.fire(t, [later]) == schedules.Fired(frozenset(), 0)
        assert not await schedules.fire_failed(t, due, "x", delay_seconds=1, final=True)
        assert before == await t.fetch_all(ROWS)


async def test_an_edit_counts_from_the_moment_at_which_it_asks(world: Any) -> None:
    """After its wait for the lock: slots that came due meanwhile belong to the schedule as it was."""
    async with tx(world.pool) as t:
        began = await t.fetch_one("SELECT now() AS at, pg_sleep(0.05)")
        assert began is not None
        assert await schedules_edit.moment(t) >= began["at"] + timedelta(seconds=0.05)


@pytest.mark.seed(175)
async def test_the_slot_table_is_the_last_line(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await world.steady()
    [row] = await world.sql("SELECT id, next_run_at FROM scheduler.schedules")
    await world.sql("INSERT INTO scheduler.run_slots VALUES (%(i)s, %(s)s, 7)", i=row["id"], s=row["next_run_at"])
    await world.turn("fire")
    assert len(await slots(world)) == 2


@pytest.mark.parametrize(
    ("catch_up", "fired", "skipped"),
    [
        ({"policy": "skip"}, 0, 59),
        ({"policy": "one"}, 1, 58),
        ({"policy": "all", "max": 5}, 5, 54),
        ({"policy": "all"}, 59, 0),
    ],
)
async def test_catch_up(world: Any, make: Any, catch_up: dict[str, Any], fired: int, skipped: int) -> None:
    await world.apply(make.job(), make.schedule(catch_up=catch_up))
    await missed(world, 600)
    await world.turn("fire", "fire")
    now = world.now()
    old = [row for row in await slots(world) if row["slot"] < now - timedelta(seconds=20)]
    stretches = [count for outcome, count in await ledger(world) if outcome == "catch_up"]
    # The wall clock decides whether one more slot counts as missed.
    assert abs(len(old) - fired) <= 1 and abs(sum(stretches) - skipped) <= 1 and len(stretches) == (1 if skipped else 0)
    assert len(old) + sum(stretches) in (58, 59, 60)


@pytest.mark.parametrize("outcome", ["withdrawn", "submit_failed"])
async def test_a_stretch_whose_first_slot_has_a_row_is_whole(world: Any, make: Any, outcome: str) -> None:
    await world.apply(make.job(), make.schedule(catch_up={"policy": "skip"}))
    await missed(world, 1000)
    await world.sql(
        "INSERT INTO scheduler.fire_ledger (schedule_id, first_slot, last_slot, outcome)"
        " SELECT id, next_run_at, next_run_at, %(o)s FROM scheduler.schedules",
        o=outcome,
    )
    await world.turn("fire")
    [(reason, count), *_] = await ledger(world)
    assert reason == "catch_up" and count in (98, 99, 100)


async def test_a_long_stretch_is_settled_in_several_plans(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.schedule(catch_up={"policy": "all", "max": 3}))
    await missed(world, 30_000)
    for _ in range(8):
        await world.turn("fire")
    stretches = [count for outcome, count in await ledger(world) if outcome == "catch_up"]
    assert len(stretches) >= 3 and 2990 <= sum(stretches) <= 3000
    assert len([row for row in await slots(world) if row["slot"] < world.now() - timedelta(seconds=20)]) in (2, 3, 4)


@pytest.mark.seed(84, 85)
async def test_ahead_then_dispatch_at_the_time(world: Any, make: Any) -> None:
    executor = await world.executor(slots=1)
    await world.apply(make.job(), make.schedule())
    await world.steady()
    await world.turn("fire", "assign")
    rows = await world.sql(
        "SELECT id, slot, state::text AS state, token, dispatched_at FROM scheduler.runs_live ORDER BY slot"
    )
    assert [row["state"] for row in rows] == ["ASSIGNED"] * 3 and all(row["token"] is None for row in rows)
    assert world.orders.starts == []
    done = await world.turn("assign")
    assert done.next_in is not None and done.next_in <= 10.0
    await world.at(rows[0]["slot"])
    await world.turn("assign")
    [(to, order)] = world.orders.starts
    assert to == executor and order.key.run_id == rows[0]["id"] and order.slot == rows[0]["slot"]
    assert await world.events(rows[0]["id"]) == ["created", "assigned", "dispatched"]


async def test_overlap_is_skipped_at_its_dispatch(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(), make.schedule())
    await world.steady()
    await world.turn("fire", "assign")
    rows = await world.sql("SELECT id, slot FROM scheduler.runs_live ORDER BY slot")
    for row in rows[:2]:
        await world.at(row["slot"])
        await world.turn("assign")
    assert [order.key.run_id for _, order in world.orders.starts] == [rows[0]["id"]]
    second = await world.run(rows[1]["id"])
    assert (second["state"], second["reason"]) == ("SKIPPED", "overlap")
    assert await world.events(rows[1]["id"]) == ["created", "assigned", "released", "skipped"]
    ledger = "SELECT outcome, run_id, message FROM scheduler.fire_ledger ORDER BY first_slot LIMIT 2"
    kept = [tuple(row.values()) for row in await world.sql(ledger)]
    assert kept[0][:2] == ("fired", rows[0]["id"])
    assert kept[1] == ("overlap", rows[1]["id"], "an earlier run of the same schedule is still live (policy forbid)")


@pytest.mark.seed(49)
async def test_allow_runs_beside_the_earlier_one(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(concurrency={"policy": "allow"}), make.schedule())
    await world.steady()
    await world.turn("fire")
    await world.at(world.now() + timedelta(seconds=30))
    await world.turn("assign")
    assert len(world.orders.starts) == 3


@pytest.mark.seed(58)
async def test_late_runs_are_skipped(world: Any, make: Any) -> None:
    await world.apply(make.job(skip_late_after_seconds=60))
    [run] = await world.start()
    world.time.offset = timedelta(seconds=61)
    await world.turn("reap")
    row = await world.run(run)
    assert (row["state"], row["reason"]) == ("SKIPPED", "late")


@pytest.mark.seed(58)
async def test_the_setting_says_what_is_late_where_the_job_does_not(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(), make.job("patient", skip_late_after_seconds=0), make.job("begun"))
    world.settings.set(skip_late_runs_after_seconds=60)
    [begun] = await world.start("begun")
    await world.turn("assign")
    world.orders.down.update(world.incarnations)
    await world.sql("UPDATE scheduler.executors SET state = 'draining'")
    [late], [waits] = await world.start(), await world.start("patient")
    world.time.offset = timedelta(seconds=30)
    await world.turn("reap", "assign")
    assert await world.state(late) == "PENDING"
    world.time.offset = timedelta(seconds=61)
    await world.turn("reap", "assign")
    row = await world.run(late)
    assert (row["state"], row["reason"]) == ("SKIPPED", "late")
    assert (await world.state(waits), await world.state(begun)) == ("PENDING", "ASSIGNED")


@pytest.mark.seed(43, 211)
async def test_disabled_job_is_in_the_ledger(world: Any, make: Any) -> None:
    await world.apply(make.job(enabled=False), make.schedule())
    await world.steady()
    await world.turn("fire")
    assert await slots(world) == [] and await ledger(world) == [("disabled", 3)]


@pytest.mark.seed(219)
async def test_one_bad_schedule_holds_up_no_other(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.job("picky"), make.schedule("good"), make.schedule("bad", "picky"))
    await world.apply(make.job("picky", payload_schema={"type": "object", "required": ["n"]}), force=True)
    await world.steady()
    await world.turn("fire")
    assert len(await slots(world)) == 3
    for _ in range(6):
        await world.sql(
            "UPDATE scheduler.schedules SET fire_retry_at = now() - interval '1 s' WHERE fire_retry_at IS NOT NULL"
        )
        await world.turn("fire")
    [bad] = await world.sql("SELECT status, fire_retry_count, last_error FROM scheduler.schedules WHERE name = 'bad'")
    assert bad["status"] == "failed" and bad["fire_retry_count"] == 6 and "payload" in bad["last_error"]
    assert ("submit_failed", 1) in await ledger(world)


async def test_apply_twice_is_unchanged(world: Any, make: Any) -> None:
    documents = [make.job(), make.schedule()]
    assert await world.apply(*documents) == [("hello", "created", 1), ("often", "created", 1)]
    assert await world.apply(*documents) == [("hello", "unchanged", 1), ("often", "unchanged", 1)]
    assert await world.apply(make.job(priority=1)) == [("hello", "updated", 2)]
    versions = await world.sql("SELECT version FROM scheduler.job_definition_versions ORDER BY version")
    assert [row["version"] for row in versions] == [1, 2]


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        ({"job": "helo"}, ErrorCode.JOB_NOT_FOUND, "test.yaml, document 2: spec.job"),
        ({"cron": "0 0 30 2 *"}, ErrorCode.SCHEDULE_INVALID, "document 2"),
        ({"cron": "0 0 * * *", "timezone": "Mars/X"}, ErrorCode.SCHEDULE_INVALID, "Mars/X"),
        ({"payload": {"x": 1}}, ErrorCode.PAYLOAD_INVALID, "document 2"),
        ({"oops": 1}, ErrorCode.MANIFEST_INVALID, "oops"),
    ],
)
async def test_apply_invalid_leaves_nothing(
    world: Any, make: Any, bad: dict[str, Any], code: ErrorCode, words: str
) -> None:
    strict = {"type": "object", "additionalProperties": False}
    with pytest.raises(TobanError) as caught:
        await world.apply(make.job(payload_schema=strict), make.schedule(**bad))
    assert caught.value.code is code and words in caught.value.message
    assert await world.sql("SELECT 1 FROM scheduler.job_definitions") == []


async def test_dry_run_writes_nothing(world: Any, make: Any) -> None:
    assert await world.apply(make.job(), dry_run=True) == [("hello", "created", 1)]
    assert await world.sql("SELECT 1 FROM scheduler.job_definitions") == []


async def test_an_edit_settles_and_withdraws(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(), make.schedule(catch_up={"policy": "skip"}))
    await missed(world, 100)
    await world.apply(make.job(), make.schedule(catch_up={"policy": "skip"}, interval_seconds=20))
    settled = await ledger(world)
    assert settled[0][0] == "catch_up" and sum(count for _, count in settled) in (10, 11)
    await world.turn("fire", "assign")
    before = await slots(world)
    await world.apply(make.schedule(interval_seconds=3600))
    after = {row["slot"]: row for row in await slots(world)}
    withdrawn = [row for row in after.values() if row["reason"] == "withdrawn"]
    assert len(before) >= 1 and withdrawn and all(row["state"] == "SKIPPED" for row in withdrawn)
    assert [outcome for outcome, _ in await ledger(world)].count("withdrawn") == len(withdrawn)
    await world.apply(make.schedule(interval_seconds=20))
    await world.turn("fire")
    live = [row for row in await slots(world) if row["state"] == "PENDING"]
    assert {row["slot"] for row in live} >= {row["slot"] for row in withdrawn}


async def test_long_stretches_of_missed_slots_leave_room_for_the_leaders_beat(
    world: Any, make: Any, monkeypatch: Any
) -> None:
    """A leader that keeps its event loop for a second loses its term: sixty schedules of every minute after a day of silence."""
    world.settings.set(fire_batch_size=30)
    # Expressions of their own: what is found for one is not known of the others.
    rules = [f"*/1,{n} * * * *" for n in range(60)]
    await world.apply(make.job(), *(make.schedule(f"s{n}", cron=rules[n], catch_up="one") for n in range(60)))
    await world.sql("UPDATE scheduler.schedules SET next_run_at = date_trunc('minute', now()) - interval '1 day'")
    tick, planned_in, plan = 0, Counter[int](), decide.plan

    def counted(schedule: Any, *arguments: Any, **named: Any) -> Any:
        # A minute that comes into view during the test is one slot, and no long stretch.
        planned_in[tick] += schedule.next_run_at < named["now"]
        return plan(schedule, *arguments, **named)

    async def listen() -> None:
        nonlocal tick
        while True:
            tick += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(decide, "plan", counted)
    listening = asyncio.create_task(listen())
    while (await world.turn("fire")).next_in == 0.0:
        pass
    listening.cancel()
    runs = await world.sql("SELECT schedule_id, count(*) AS n FROM scheduler.run_slots WHERE slot <= now() GROUP BY 1")
    # For 15 s after a full minute its slot is not missed yet: it fires beside the latest missed one.
    assert len(runs) == 60 and {row["n"] for row in runs} <= {1, 2}
    assert planned_in.total() >= 120, "a day has more slots than one plan looks at"
    assert max(planned_in.values()) <= 3, "each plan takes longer than one time slice"


@pytest.mark.seed(212, 213)
async def test_thousands_of_schedules_of_one_second_go_in_small_transactions(
    world: Any, make: Any, monkeypatch: Any
) -> None:
    """Each has its run and its row in the ledger, and no transaction has more than its share."""
    await world.apply(make.job(), make.schedule())
    await world.sql(
        "INSERT INTO scheduler.schedules OVERRIDING SYSTEM VALUE SELECT (jsonb_populate_record(s, jsonb_build_object("
        " 'id', s.id + n, 'name', 's' || n, 'spec', jsonb_set(s.spec, '{name}', to_jsonb('s' || n))))).*"
        " FROM scheduler.schedules s, generate_series(1, 2999) n"
    )
    await world.steady()
    written, fire = [], schedules.fire

    async def counted(t: Any, plans: Any) -> Any:
        fired = await fire(t, plans)
        written.append((sum(len(plan.fires) for plan in plans), sum(map(rows_of, plans))))
        return fired

    monkeypatch.setattr(schedules, "fire", counted)
    while (await world.turn("fire")).next_in == 0.0:
        pass
    # On a busy machine a part that takes too long is rolled back and written again in halves.
    assert sum(runs for runs, _ in written) >= 9000 and max(rows for _, rows in written) <= WRITE_ROWS
    rows = await world.sql(
        "SELECT schedule_id, count(*) AS n, count(DISTINCT slot) AS d FROM scheduler.run_slots GROUP BY 1"
    )
    assert len(rows) == 3000 and {(row["n"], row["d"]) for row in rows} == {(3, 3)}
    assert (await world.sql("SELECT count(*) AS n FROM scheduler.fire_ledger WHERE outcome = 'fired'"))[0]["n"] == 9000
