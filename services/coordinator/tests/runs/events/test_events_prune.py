"""What is older than its retention goes: partitions by date, rows in small batches; live runs and waiting events keep what they need."""

import re
from typing import Any

import pytest

from toban_coordinator.loops import prune
from toban_coordinator.store.runs import retention
from toban_store.errors import Refused
from toban_store.tx import tx

PARENTS = ("events_history", "job_attempts", "job_events", "runs_history")


async def partitions(world: Any, *, older_than: int = 0) -> list[str]:
    rows = await world.sql(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent"
        " WHERE p.relkind = 'p' AND right(c.relname, 8) < to_char(now() AT TIME ZONE 'UTC' - make_interval(days => %(d)s), 'YYYYMMDD')"
        " ORDER BY 1",
        d=older_than,
    )
    return [row["relname"] for row in rows]


async def make_days(world: Any, first: int, last: int) -> None:
    """Day partitions from so many days ago to so many days ago."""
    await world.sql("SELECT scheduler.ensure_partitions(current_date - %(f)s, current_date - %(l)s)", f=first, l=last)


async def test_old_partitions_go_and_young_ones_stay(world: Any) -> None:
    await make_days(world, 93, 89)
    world.settings.set(history_retention_days=90)
    before = set(await partitions(world))
    old = set(await partitions(world, older_than=90))
    assert len(old) == 3 * len(PARENTS)
    done = await world.turn("prune")
    assert done.next_in == prune.AGAIN_SECONDS, "a turn drops a few and goes on soon"
    await world.turn("prune")
    assert before - set(await partitions(world)) == old
    assert (await world.turn("prune")).moved == 0


@pytest.mark.parametrize("unsure", ["history_retention_days", "dedupe_days"])
async def test_nothing_is_deleted_by_an_unknown_setting(world: Any, unsure: str) -> None:
    """PostgreSQL was not asked yet, or what is stored is of another release: the default would take what an operator keeps for years."""
    await make_days(world, 93, 92)
    await world.sql(
        "INSERT INTO scheduler.event_keys (event_type, dedupe_key, event_id, seen_at) VALUES ('t', 'k', 1, now() - interval '99 days')"
    )
    old = await partitions(world, older_than=90)
    world.settings.unsure = {unsure}
    for _ in range(3):
        await world.turn("prune")
    keys = len(await world.sql("SELECT 1 FROM scheduler.event_keys"))
    kept = await partitions(world, older_than=90)
    assert (kept, keys) == ((old, 0) if unsure == "history_retention_days" else ([], 1))
    world.settings.unsure = set()
    for _ in range(3):
        await world.turn("prune")
    assert await partitions(world, older_than=90) == [] == await world.sql("SELECT 1 FROM scheduler.event_keys")


async def test_a_live_run_keeps_its_attempts_and_events(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job())
    [live] = await world.start()
    await make_days(world, 120, 120)
    await make_days(world, 110, 110)
    await world.sql("UPDATE scheduler.runs_live SET created_at = now() - interval '121 days'")
    await world.sql(
        "INSERT INTO scheduler.job_events (at, run_id, type) VALUES (now() - interval '120 days', %(r)s, 'x'),"
        " (now() - interval '110 days', 77, 'x')",
        r=live,
    )
    await world.sql(
        "INSERT INTO scheduler.job_attempts (log_day, run_id, token, attempt, leader_epoch, incarnation, worker_id, dispatched_at)"
        " SELECT current_date - 110, %(r)s, 5, 1, 1, gen_random_uuid(), 1, now() - interval '110 days'",
        r=live,
    )
    for _ in range(3):
        await world.turn("prune")
    kept = [name.rpartition("_")[0] for name in await partitions(world, older_than=90)]
    assert kept == ["job_attempts", "job_events"]
    assert "x" in await world.events(live)
    await world.finished(live)
    await world.turn("prune")
    assert await partitions(world, older_than=90) == []
    assert await world.state(live) == "SUCCEEDED", "the history of today stays"


async def test_a_partition_that_is_read_is_dropped_later(world: Any) -> None:
    await make_days(world, 100, 100)
    busy = prune.busy_partitions._value.get()
    async with tx(world.pool) as t:
        await t.execute("SELECT count(*) FROM scheduler.events_history")
        done = await world.turn("prune")
    assert done.next_in == prune.BUSY_SECONDS and prune.busy_partitions._value.get() == busy + 1
    assert len(await partitions(world, older_than=90)) == len(PARENTS)
    await world.turn("prune")
    assert await partitions(world, older_than=90) == []


OLD_ROWS = """
WITH s AS (SELECT n, now() - interval '91 days' - make_interval(secs => n) AS at FROM generate_series(1, %(n)s) AS n),
slots AS (INSERT INTO scheduler.run_slots SELECT 1, at, 1000 + n FROM s),
fired AS (INSERT INTO scheduler.fire_ledger (schedule_id, first_slot, last_slot, outcome, run_id) SELECT 1, at, at, 'fired', 1000 + n FROM s),
skipped AS (INSERT INTO scheduler.fire_ledger (schedule_id, first_slot, last_slot, outcome) SELECT 2, at, at, 'late' FROM s),
keys AS (INSERT INTO scheduler.run_idempotency SELECT 'key-' || n, 1000 + n, at FROM s),
event_keys AS (INSERT INTO scheduler.event_keys SELECT 't', 'k' || n, n, at FROM s),
results AS (INSERT INTO scheduler.orphan_results SELECT 1000 + n, 1, '{}', gen_random_uuid(), at FROM s)
INSERT INTO scheduler.event_runs SELECT n, 1, 1000 + n, at FROM s
"""
COUNTS = """
SELECT (SELECT count(*) FROM scheduler.run_slots) AS run_slots, (SELECT count(*) FROM scheduler.fire_ledger WHERE run_id IS NOT NULL) AS fired,
       (SELECT count(*) FROM scheduler.fire_ledger WHERE run_id IS NULL) AS skipped,
       (SELECT count(*) FROM scheduler.run_idempotency) AS run_idempotency, (SELECT count(*) FROM scheduler.event_keys) AS event_keys,
       (SELECT count(*) FROM scheduler.event_runs) AS event_runs, (SELECT count(*) FROM scheduler.orphan_results) AS orphan_results
"""


async def test_old_rows_are_forgotten_in_small_batches(world: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(prune, "ROWS", 10)
    monkeypatch.setattr(prune, "TURN_BATCHES", 3)
    world.take(world.term)
    await world.sql(OLD_ROWS, n=45)
    done = await world.turn("prune")
    assert done.next_in == prune.AGAIN_SECONDS
    assert set((await world.sql(COUNTS))[0].values()) == {15}
    done = await world.turn("prune")
    assert done.next_in is None
    assert set((await world.sql(COUNTS))[0].values()) == {0}


async def test_what_cannot_be_forgotten_fails_the_turn_and_keeps_nothing_else(world: Any, monkeypatch: Any) -> None:
    """A loop that fails is what an alert looks at (TobanLoopFailing): rows that only grow must not be a line of log alone."""
    await world.sql(OLD_ROWS, n=3)
    forget = retention.forget

    async def refused(t: Any, table: str, **named: Any) -> int:
        if table == "run_slots":
            raise Refused("no such index", sqlstate="22000")
        return await forget(t, table, **named)

    monkeypatch.setattr(retention, "forget", refused)
    with pytest.raises(Refused, match="no such index"):
        await world.turn("prune")
    [counts] = await world.sql(COUNTS)
    # A fired slot and its row in the ledger go together.
    assert {table for table, count in counts.items() if count} == {"run_slots", "fired"}
    monkeypatch.setattr(retention, "forget", forget)
    await world.turn("prune")
    assert set((await world.sql(COUNTS))[0].values()) == {0}


async def test_what_cannot_be_forgotten_holds_up_nothing_else(world: Any, monkeypatch: Any) -> None:
    """A turn that fails is followed by a backoff of minutes: only one that has nothing left to do soon may fail."""
    monkeypatch.setattr(prune, "ROWS", 10)
    monkeypatch.setattr(prune, "TURN_BATCHES", 1)
    world.take(world.term)
    await world.sql(OLD_ROWS, n=25)
    forget = retention.forget

    async def refused(t: Any, table: str, **named: Any) -> int:
        if table == "run_slots":
            raise Refused("no such index", sqlstate="22000")
        return await forget(t, table, **named)

    monkeypatch.setattr(retention, "forget", refused)
    for left in (15, 5):
        assert (await world.turn("prune")).next_in == prune.AGAIN_SECONDS
        assert (await world.sql(COUNTS))[0]["event_keys"] == left
    for _ in range(2):
        with pytest.raises(Refused, match="no such index"):
            await world.turn("prune")
    [counts] = await world.sql(COUNTS)
    assert {table for table, count in counts.items() if count} == {"run_slots", "fired"}


async def test_what_is_young_or_live_or_waits_is_kept(world: Any, make: Any) -> None:
    await world.apply(make.job())
    [live] = await world.start(idempotency_key="mine")
    await world.sql(OLD_ROWS, n=3)
    await world.sql("UPDATE scheduler.run_idempotency SET created_at = now() - interval '91 days'")
    for table in ("run_slots", "event_runs", "orphan_results"):
        await world.sql(f"UPDATE scheduler.{table} SET run_id = %(r)s WHERE run_id = 1001", r=live)
    await world.sql("UPDATE scheduler.fire_ledger SET run_id = %(r)s WHERE run_id = 1001", r=live)
    await world.sql(
        "UPDATE scheduler.fire_ledger SET last_slot = now() WHERE schedule_id = 2 AND first_slot < now() - interval '91 days 2 s'"
    )
    await world.sql("INSERT INTO scheduler.events (id, event_type) OVERRIDING SYSTEM VALUE VALUES (1, 't'), (2, 't')")
    await world.sql("UPDATE scheduler.event_keys SET seen_at = now() - interval '6 days' WHERE event_id = 3")
    await world.turn("prune")
    [counts] = await world.sql(COUNTS)
    # Old slots and keys stay for the live run; keys and runs of events stay for those that are not processed; the third key is young.
    assert counts == {
        "run_slots": 1,
        "fired": 1,
        "skipped": 2,
        "run_idempotency": 1,
        "event_keys": 3,
        "event_runs": 2,
        "orphan_results": 1,
    }
    world.settings.set(dedupe_days=5)
    await world.turn("prune")
    assert (await world.sql(COUNTS))[0]["event_keys"] == 2


async def test_executors_and_coordinators_that_are_gone_are_forgotten(world: Any, make: Any) -> None:
    """Each start of one leaves a row, and a take-over looks at all of them."""
    gone, young, named, on = [await world.executor(number) for number in range(1, 5)]
    await world.apply(make.job())
    [run] = await world.start()
    await world.sql(
        "UPDATE scheduler.runs_live SET state = 'ASSIGNED', assigned_incarnation = %(i)s WHERE id = %(r)s",
        i=named,
        r=run,
    )
    for incarnation, days in ((gone, 91), (young, 89), (named, 91)):
        await world.sql(
            "UPDATE scheduler.executors SET state = 'off', off_at = now() - make_interval(days => %(d)s) WHERE incarnation = %(i)s",
            d=days,
            i=incarnation,
        )
    await world.sql(
        "UPDATE scheduler.executors SET registered_at = now() - interval '1 year', last_heartbeat_at = now() - interval '1 year'"
    )
    await world.sql(
        "INSERT INTO scheduler.coordinators (incarnation, worker_id, node_id, address, pid, version, last_seen_at)"
        " SELECT gen_random_uuid(), 1000 + d, 'n', 'a', 1, '1', now() - make_interval(days => d) FROM unnest(ARRAY[0, 89, 91]) AS d"
    )
    await world.turn("prune")
    rows = await world.sql("SELECT incarnation::text AS i FROM scheduler.executors ORDER BY 1")
    assert [row["i"] for row in rows] == [young, named, on]
    assert len(await world.sql("SELECT 1 FROM scheduler.coordinators")) == 2


async def test_an_executor_that_is_off_is_kept_until_its_orders_are_dropped(world: Any) -> None:
    """So no row of it drags others along; they are dropped when they are answered, or when it is off."""
    off = await world.executor(1)
    await world.sql(
        "INSERT INTO scheduler.executor_orders (incarnation, kind, run_id, token, epoch, serial, done_at)"
        " VALUES (%(i)s, 'cancel', 1, 1, 1, 1, now()), (%(i)s, 'drain', NULL, NULL, 1, 2, NULL)",
        i=off,
    )
    await world.sql("UPDATE scheduler.executors SET state = 'off', off_at = now() - interval '91 days'")
    await world.turn("prune")
    assert len(await world.sql("SELECT 1 FROM scheduler.executors")) == 1
    await world.turn("reap")
    assert await world.sql("SELECT 1 FROM scheduler.executor_orders") == []
    await world.turn("prune")
    assert await world.sql("SELECT 1 FROM scheduler.executors") == []


# Tables with so few rows that they are read whole.
SMALL = {
    "executors": {"executors", "executor_orders"},
    "executor_instances": {"executors"},
    "coordinators": {"coordinators"},
    "schedules_deleted": {"schedules_deleted"},
}


@pytest.mark.parametrize("table", sorted(retention.ROW_TABLES))
async def test_old_rows_are_found_by_an_index(world: Any, table: str) -> None:
    statement = getattr(retention._sql, table)
    async with tx(world.pool) as t:
        # What stays a scan under these has no index that it could use.
        await t.execute("SET LOCAL enable_seqscan = off")
        await t.execute("SET LOCAL enable_sort = off")
        rows = await t.fetch_all(f"EXPLAIN {statement}", {"days": 90, "limit": 500})
    plan = "\n".join(row["QUERY PLAN"] for row in rows)
    assert set(re.findall(r"Seq Scan on (\w+)", plan)) <= SMALL.get(table, set()), plan
    assert table in SMALL or "Sort" not in plan, plan
