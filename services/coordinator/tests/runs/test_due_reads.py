"""What a turn of loop `assign` reads while runs wait for slots: free slots and due runs by one statement, where it says the same as two."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.loops.due_reads import SPARE
from toban_coordinator.store import runs_assign
from toban_store.tx import autocommit, tx

READS = ("executor_loads", "loads_and_due", "due_runs")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each read was sent."""
    counts: Counter[str] = Counter()
    for name in READS:
        read = getattr(runs_assign, name)

        async def counted(*arguments: Any, read: Any = read, name: str = name, **named: Any) -> Any:
            counts[name] += 1
            return await read(*arguments, **named)

        monkeypatch.setattr(runs_assign, name, counted)
    return counts


async def executor(world: Any, number: int = 1, **given: Any) -> None:
    """One whose heartbeat is fresh for the whole test."""
    await world.executor(number, **given)
    await world.sql("UPDATE scheduler.executors SET last_heartbeat_at = now() + interval '1 hour'")


async def placed(world: Any) -> list[int]:
    rows = await world.sql("SELECT id FROM scheduler.runs_live WHERE dispatched_at IS NOT NULL ORDER BY id")
    return [row["id"] for row in rows]


async def test_one_statement_reads_slots_and_runs_while_runs_wait(world: Any, make: Any, reads: Any) -> None:
    await executor(world, slots=2)
    await world.apply(make.job())
    runs = await world.start(count=5)
    await world.turn("assign")
    assert await placed(world) == runs[:2]
    reads.clear()
    await world.turn("assign")
    assert await placed(world) == runs[:2]
    await world.report(world.key(runs[0]), make.outcome())
    await world.turn("assign")
    assert await placed(world) == [runs[1], runs[2]]
    assert reads == {"loads_and_due": 2}


async def test_a_drained_executor_gets_none_of_what_waits(world: Any, make: Any, reads: Any) -> None:
    await executor(world, slots=1)
    await world.apply(make.job())
    [first, _] = await world.start(count=2)
    await world.turn("assign")
    await world.sql(
        "INSERT INTO scheduler.executor_drains (instance, actor) SELECT instance, 'ada' FROM scheduler.executors"
    )
    await world.report(world.key(first), make.outcome())
    await world.turn("assign")
    assert reads["loads_and_due"] == 1
    assert await placed(world) == []


async def test_a_definition_that_fits_some_executors_only_holds_up_no_other(world: Any, make: Any, reads: Any) -> None:
    """While the executor that fits is full its runs are left out of the read, so that it shows the others."""
    await executor(world, 1, slots=1)
    await executor(world, 2, slots=1, labels={"gpu": "yes"})
    await world.apply(make.job("gpu", selector={"labels": {"gpu": "yes"}}), make.job())
    wanting = await world.start("gpu", count=SPARE * 2)
    await world.turn("assign")
    assert await placed(world) == wanting[:1]
    [other] = await world.start()
    reads.clear()
    await world.turn("assign")
    assert await placed(world) == [wanting[0], other]
    assert reads["loads_and_due"] == 0


async def test_many_definitions_without_room_do_not_keep_a_free_slot_from_another(world: Any, make: Any) -> None:
    await executor(world, 1, slots=1)
    await executor(world, 2, slots=1, labels={"gpu": "yes"})
    fitting = [make.job(f"gpu{n}", selector={"labels": {"gpu": "yes"}}) for n in range(10)]
    await world.apply(make.job(), *fitting)
    first, other = [*await world.start("gpu0"), *await world.start()]
    await world.turn("assign")
    waiting = [*[run for n in range(1, 10) for run in await world.start(f"gpu{n}")], *await world.start()]
    await world.turn("assign")
    assert await placed(world) == [first, other]
    for run in (first, other):
        await world.report(world.key(run), make.outcome())
    # The first turn finds that only one of the nine has room; the second one looks past them.
    await world.turn("assign")
    await world.turn("assign")
    assert await placed(world) == [waiting[0], waiting[-1]]


async def test_ranks_that_differ_are_read_the_long_way(world: Any, make: Any, reads: Any) -> None:
    await executor(world, slots=1)
    await world.apply(make.job(), make.job("urgent", priority=1))
    first, second = await world.start(count=2)
    await world.turn("assign")
    [urgent] = await world.start("urgent")
    await world.report(world.key(first), make.outcome())
    reads.clear()
    await world.turn("assign")
    assert await placed(world) == [urgent]
    assert reads == {"loads_and_due": 1, "due_runs": 1}
    await world.report(world.key(urgent), make.outcome())
    await world.turn("assign")
    assert await placed(world) == [second]


async def test_both_reads_say_the_same(world: Any, make: Any) -> None:
    await executor(world, 1, slots=2, labels={"zone": "a", "text": 'a "b" \\ ü'})
    await executor(world, 2, slots=3)
    await world.apply(make.job())
    await world.start(count=9)
    now = world.now()
    async with autocommit(world.pool) as t:
        loads = await runs_assign.executor_loads(t)
        both = await runs_assign.loads_and_due(t, now, limit=500, beside=1)
        due, alone = await runs_assign.due_runs(t, now, limit=6, one_scope=True)
        none = await runs_assign.loads_and_due(t, now - timedelta(days=1), limit=500, beside=1)
    assert sorted(both.loads, key=lambda e: e.worker_id) == sorted(loads, key=lambda e: e.worker_id)
    assert (both.due, both.several) == (due, not alone)
    assert (len(none.loads), none.due, none.several) == (2, [], False)


async def test_a_large_backlog_is_not_read_for_few_slots(world: Any, make: Any) -> None:
    await executor(world, slots=2)
    await world.apply(make.job())
    [run] = await world.start()
    async with tx(world.administrator) as t:
        await t._run(
            "INSERT INTO scheduler.runs_live SELECT n.* FROM scheduler.runs_live r CROSS JOIN generate_series(1, 5000) i"
            " CROSS JOIN LATERAL jsonb_populate_record(r, jsonb_build_object('id', r.id + i)) n WHERE r.id = %(id)s",
            {"id": run},
        )
        await t._run("ANALYZE scheduler.runs_live", {})
    parameters = {"now": world.now(), "beside": 1, "limit": 501, "blocked": "{}", "blocked_versions": "{}"}
    async with autocommit(world.pool) as t:
        statement = f"EXPLAIN (ANALYZE, FORMAT JSON) {runs_assign._sql.loads_and_due}"
        [row] = await t.fetch_all(statement, parameters, prepare=False)
    scans = [node for node in nodes_of(row["QUERY PLAN"][0]["Plan"]) if node.get("Relation Name") == "runs_live"]
    assert len(scans) >= 3 and max(scan["Actual Rows"] for scan in scans) <= 3, scans


def nodes_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(inner for part in node.get("Plans", []) for inner in nodes_of(part))]
