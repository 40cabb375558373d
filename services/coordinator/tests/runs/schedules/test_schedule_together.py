"""Edits that meet, edits of many schedules at once, and what a job that is switched does to its schedules."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.app.definitions import apply as apply_module
from toban_coordinator.app.schedules import slot_counting
from toban_domain.errors import ErrorCode, TobanError
from toban_store.tx import Tx, tx
from toban_testing.waiting import until_lock_wait

EVERY_SECOND = {"cron": "* * * * * *", "timezone": "Europe/Berlin"}


async def count(world: Any, statement: str) -> int:
    return int((await world.sql(f"SELECT count(*) AS n FROM {statement}"))[0]["n"])


@pytest.mark.parametrize("edit", ["resume", "delete", "apply"])
async def test_a_long_pause_of_every_second_ends(world: Any, make: Any, desk: Any, edit: str) -> None:
    """Two days of seconds take longer to count than PostgreSQL lets a transaction wait."""
    await world.apply(make.job(), make.schedule(**EVERY_SECOND))
    await desk.pause(reason="for long")
    first = await desk.passed(2 * 86_400 + 3600)
    if edit == "apply":
        await world.apply(make.schedule(**EVERY_SECOND, payload={"x": 1}))
    else:
        await getattr(desk, edit)()
    [row] = await world.sql("SELECT * FROM scheduler.fire_ledger WHERE outcome = 'paused'")
    assert row["first_slot"] == first
    assert row["slots"] == (row["last_slot"] - first) // timedelta(seconds=1) + 1, "each second of it is counted once"
    [done] = (await desk.actions())[-1:]
    assert f"until {row['last_slot'].isoformat()}" <= done["before"]["slots"]
    if edit != "delete":
        [kept] = await world.sql("SELECT next_run_at FROM scheduler.schedules")
        assert kept["next_run_at"] == row["last_slot"] + timedelta(seconds=1)


@pytest.mark.usefixtures("young_period")
async def test_a_stretch_that_changes_while_it_is_counted_is_counted_again(
    world: Any, make: Any, desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.apply(make.job(), make.schedule())
    await desk.pause()
    await desk.passed(1000)
    changes, counted = 1, []

    def meanwhile(self: Any) -> Any:
        counted.append(self.schedules[0][0].version)
        found = plain(self)
        if len(counted) <= changes:
            change = world.sql(
                "UPDATE scheduler.schedules SET version = version + 1, next_run_at = next_run_at + interval '10 s'"
            )
            asyncio.run_coroutine_threadsafe(change, loop).result()
        return found

    loop, plain = asyncio.get_running_loop(), slot_counting.Uncounted.count
    monkeypatch.setattr(slot_counting.Uncounted, "count", meanwhile)
    await desk.resume()
    [(outcome, slots)] = await desk.ledger()
    assert counted == [2, 3] and outcome == "paused" and slots in (100, 101)
    await desk.pause()
    await desk.passed(1000)
    changes = 99
    with pytest.raises(TobanError) as caught:
        await desk.resume()
    assert caught.value.code is ErrorCode.CONFLICT


async def test_an_edit_that_waits_for_a_move_to_another_job_finds_the_schedule(
    world: Any, make: Any, desk: Any
) -> None:
    await world.apply(make.job(), make.job("other"), make.schedule())
    async with tx(world.pool) as t:
        await t.execute(
            'UPDATE scheduler.schedules SET version = version + 1, spec = spec || \'{"job": "other"}\','
            " definition_id = (SELECT id FROM scheduler.job_definitions WHERE name = 'other')"
        )
        pausing = asyncio.create_task(desk.pause())
        await until_lock_wait(world.sql)
    paused = await pausing
    assert (paused.status, paused.job, paused.version) == ("paused", "other", 3)


async def test_an_apply_locks_its_runs_in_the_order_of_their_ids(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.schedule("s1"), make.schedule("s2"))
    # The runs of the schedule with the higher id come first.
    for name in ("s2", "s1"):
        await world.sql(
            "UPDATE scheduler.schedules SET next_run_at = now() + interval '5 s' WHERE name = %(n)s", n=name
        )
        await world.sql("UPDATE scheduler.schedules SET next_run_at = NULL WHERE name <> %(n)s", n=name)
        await world.turn("fire")
    async with tx(world.pool) as t:
        first = await t.fetch_one("SELECT id, schedule_name FROM scheduler.runs_live ORDER BY id LIMIT 1 FOR UPDATE")
        assert first is not None and first["schedule_name"] == "s2"
        applying = asyncio.create_task(
            world.apply(make.schedule("s1", payload={"x": 1}), make.schedule("s2", payload={"x": 1}))
        )
        await until_lock_wait(world.sql)
        free = await world.sql("SELECT id FROM scheduler.runs_live ORDER BY id FOR UPDATE SKIP LOCKED")
        assert len(free) == await count(world, "scheduler.runs_live") - 1, "it holds none while it waits for the first"
    assert await applying == [("s1", "updated", 2), ("s2", "updated", 2)]


@pytest.mark.usefixtures("young_period")
async def test_slots_that_a_disabled_job_skipped_ahead_are_free_once_it_is_enabled(
    world: Any, make: Any, desk: Any
) -> None:
    await world.apply(make.job(enabled=False), make.schedule(), make.schedule("paused"))
    await desk.pause("paused")
    first = await desk.passed(20)
    await world.turn("fire")
    [(outcome, skipped)] = await desk.ledger()
    assert outcome == "disabled" and skipped >= 5
    assert await world.apply(make.job()) == [("hello", "updated", 2)]
    await world.turn("fire")
    rows = await world.sql("SELECT outcome, first_slot, slots FROM scheduler.fire_ledger ORDER BY first_slot")
    # A slot may come between the Apply and the turn.
    assert [row["outcome"] for row in rows] in (["disabled", *["fired"] * n] for n in (3, 4))
    assert rows[1]["first_slot"] == first + rows[0]["slots"] * timedelta(seconds=10), "no slot is lost in between"
    assert (await desk.get()).version == 2
    assert (await desk.actions())[-1]["action"] == "schedule.pause", "its job has the row, and none of its schedules"
    [done] = await world.sql("SELECT after FROM scheduler.admin_action_log WHERE action = 'job.update'")
    assert done["after"]["schedules"] == 1, "the paused one does not follow its job"


@pytest.mark.usefixtures("young_period")
async def test_a_job_that_is_disabled_takes_back_what_is_to_come(world: Any, make: Any, desk: Any) -> None:
    await world.executor()
    await world.apply(make.job(), make.schedule(), make.schedule("manual-too"))
    await desk.passed(0)
    await world.turn("fire", "assign")
    [started] = await world.start()
    await world.apply(make.job(enabled=False))
    rows = await world.sql("SELECT id, slot FROM scheduler.runs_live ORDER BY id")
    assert all(row["slot"] is None or row["slot"] <= world.now() for row in rows), "what was due stays"
    assert started in {row["id"] for row in rows}, "what was started by hand stays"
    gone = await world.sql("SELECT error_summary FROM scheduler.runs_history WHERE reason = 'withdrawn'")
    assert len(gone) in (4, 6)
    [told] = await world.sql(
        "SELECT DISTINCT regexp_replace(message, '^run \\d+: ', '') AS m FROM scheduler.fire_ledger WHERE outcome = 'withdrawn'"
    )
    assert told["m"] == "the schedule was disabled with its job before this time"
    await world.turn("fire")
    assert {"disabled"} <= {outcome for outcome, _ in await desk.ledger()}
    assert "withdrawn" not in {outcome for outcome, _ in await desk.ledger()}


async def test_a_schedule_that_is_applied_with_its_switched_job_is_written_once(
    world: Any, make: Any, desk: Any
) -> None:
    await world.apply(make.job(), make.schedule("same"), make.schedule("other"))
    done = await world.apply(make.job(enabled=False), make.schedule("same"), make.schedule("other", payload={"x": 1}))
    assert done == [("hello", "updated", 2), ("same", "unchanged", 2), ("other", "updated", 2)]
    assert len(await desk.actions()) == 3
    [done] = await world.sql("SELECT after FROM scheduler.admin_action_log WHERE action = 'job.update'")
    assert done["after"]["schedules"] == 1, "the other one has a row of its own"


async def test_slots_that_are_due_start_the_job_as_it_was(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await desk.passed(10)
    await world.apply(make.job(priority=5), make.schedule(payload={"x": 1}))
    rows = await world.sql("SELECT DISTINCT definition_version FROM scheduler.runs_live")
    assert [row["definition_version"] for row in rows] == [1]


async def test_a_large_apply_leaves_the_event_loop_free(world: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that keeps its event loop for a second loses its term."""
    read_in: list[threading.Thread] = []
    read = apply_module.read_manifests

    def noted(*arguments: Any, **named: Any) -> Any:
        read_in.append(threading.current_thread())
        return read(*arguments, **named)

    monkeypatch.setattr(apply_module, "read_manifests", noted)
    statements = count_statements(monkeypatch)
    await world.apply(make.job())
    for payload in ({}, {"x": 1}):
        statements.clear()
        many = [make.schedule(f"s{n}", cron="H H * * *", payload=payload) for n in range(1200)]
        assert len(await world.apply(*many)) == 1200
        assert len(statements) < 60, "a few statements for hundreds of schedules"
    assert len(read_in) == 3 and threading.main_thread() not in read_in
    assert await count(world, "scheduler.admin_action_log WHERE starts_with(action, 'schedule.')") == 2400


def count_statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    sent: list[str] = []
    run: Callable[..., Awaitable[Any]] = Tx._run

    async def noted(self: Any, sql: str, *others: Any) -> Any:
        sent.append(sql)
        return await run(self, sql, *others)

    monkeypatch.setattr(Tx, "_run", noted)
    return sent
