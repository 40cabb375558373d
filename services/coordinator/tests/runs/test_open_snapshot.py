"""While a snapshot is open the index entries of ended runs are not removed: the leader scans them rarely, and its reads find what is due and held."""

import itertools
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from toban_coordinator.decide.placement.search_pace import SearchPace
from toban_coordinator.store.placement import runs_assign
from toban_coordinator.store.runs import progress, runs_finish
from toban_store.tx import Tx, autocommit, tx

BY_ID = {
    "place": runs_assign._sql.place,
    "name_executors": runs_assign._sql.name_executors,
    "lock_live": runs_finish._sql.lock_live,
    "started": runs_finish._sql.started,
    "finish": runs_finish._sql.finish,
    "note": progress._sql.note,
}
# What any of these statements is given.
GIVEN = {
    **{name: f"{{{','.join(map(str, range(4990, 5000)))}}}" for name in ("ids", "tokens", "next_steps")},
    **dict.fromkeys(("incarnations", "executors"), "{00000000-0000-4000-8000-000000000001}"),
    **dict.fromkeys(("hold_keys", "hold_ids", "hold_weights"), "{}"),
    "times": "{2026-01-01}",
    **dict.fromkeys(("fence_epoch", "fence_timeline", "fence_system_id"), 1),
    "moves": '[{"id": 5001, "source": "RUNNING", "token": 1, "target": "FAILED", "attempt_state": "FAILED"}]',
    "notes": "[]",
    "notify": False,
}


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Each search takes so long that the next one has to wait."""
    monkeypatch.setattr(SearchPace, "pause_seconds", property(lambda _: 30.0))
    return monkeypatch


async def read_loads(t: Tx, world: Any, known: runs_assign.KnownLoads) -> dict[str, tuple[int, int | None]]:
    loads = await runs_assign.loads_again(t, world.now(), known)
    return {one.incarnation: (one.held, one.smallest_token) for one in loads}


async def test_a_count_of_what_was_sent_lately_says_what_a_count_of_all_says(
    world: Any, make: Any, slow: pytest.MonkeyPatch
) -> None:
    await world.executor(1, slots=10)
    await world.executor(2, slots=10)
    await world.apply(make.job())
    runs = await world.start(count=6)
    await world.turn("assign")
    await world.sql(
        "UPDATE scheduler.runs_live SET dispatched_at = now() - interval '1 h' WHERE id <= %(id)s", id=runs[3]
    )
    known = runs_assign.KnownLoads()
    async with autocommit(world.pool) as t:
        assert known.asked(world.now())["sent_from"] == "-infinity"
        for _ in range(2):
            assert await read_loads(t, world, known) == await read_loads(t, world, runs_assign.KnownLoads())
        assert known.asked(world.now())["sent_from"] != "-infinity"
        await world.report(world.key(runs[0]), make.outcome())
        await world.start(count=3)
        await world.turn("assign")
        await world.report(world.key(runs[5]), make.outcome())
        counted = await read_loads(t, world, known)
        assert counted == await read_loads(t, world, runs_assign.KnownLoads())
    assert sum(held for held, _ in counted.values()) == 7
    before = world.now() - timedelta(minutes=1)
    assert known.asked(before)["sent_from"] == "-infinity", "PostgreSQL's clock went back"


async def test_turns_go_on_where_the_last_read_of_all_began(world: Any, make: Any, slow: pytest.MonkeyPatch) -> None:
    await world.executor(slots=10)
    await world.apply(make.job(), make.job("urgent", priority=10))
    first = await world.start()
    await world.turn("assign")
    second = await world.start()
    await world.turn("assign")
    assert await world.state(second[0]) == "ASSIGNED"
    other = await world.start("urgent")
    turn = await world.turn("assign")
    assert await world.state(other[0]) == "PENDING", "another rank is left to the next read of all"
    assert turn.next_in is not None and 0 < turn.next_in <= 30, "which it asks for"
    slow.undo()
    await world.turn("assign")
    assert await world.state(other[0]) == await world.state(first[0]) == "ASSIGNED"


async def test_a_full_cluster_reads_on_where_the_last_read_of_all_began(
    world: Any, make: Any, slow: pytest.MonkeyPatch
) -> None:
    await world.executor(slots=1)
    await world.apply(make.job(), make.job("other", selector={"labels": {"gpu": "yes"}}))
    runs = await world.start(count=4)
    await world.turn("assign")
    for run, follower in itertools.pairwise(runs):
        await world.report(world.key(run), make.outcome())
        await world.turn("assign")
        assert await world.state(follower) == "ASSIGNED"
    slow.setattr(SearchPace, "pause_seconds", property(lambda _: 0.0))
    await world.start("other")
    for _ in range(3):
        turn = await world.turn("assign")
    assert turn.next_in is None or turn.next_in > 0.01, "a full cluster does not turn without a pause"


@pytest.fixture
async def dead(world: Any, make: Any, pg_url: str, sql: Any) -> AsyncIterator[None]:
    """Thousands of runs have ended while a snapshot is open, and PostgreSQL has counted those that live."""
    await world.apply(make.job())
    await world.start()
    await sql(
        "INSERT INTO scheduler.runs_live SELECT n.* FROM scheduler.runs_live r CROSS JOIN generate_series(1, 5000) i"
        " CROSS JOIN LATERAL jsonb_populate_record(r, jsonb_build_object('id', r.id + i)) n"
    )
    async with await psycopg.AsyncConnection.connect(pg_url) as snapshot:
        await snapshot.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await snapshot.execute("SELECT 1 FROM scheduler.runs_live LIMIT 1")
        await sql("DELETE FROM scheduler.runs_live WHERE id <= 4980")
        await sql("VACUUM ANALYZE scheduler.runs_live")
        [[living]] = await sql("SELECT reltuples FROM pg_class WHERE relname = 'runs_live'")
        assert living <= 30
        yield


@pytest.mark.parametrize("name", BY_ID)
async def test_runs_are_found_by_their_ids(world: Any, dead: None, name: str) -> None:
    """The planner takes each index for an empty one then, and may use any that has the id in it, or whose predicate the statement implies."""
    async with tx(world.administrator) as t:
        [row] = await t.fetch_all(f"EXPLAIN (FORMAT JSON) {BY_ID[name]}", GIVEN, prepare=False)
    scans = [
        (node["Index Name"], node.get("Index Cond", ""))
        for node in nodes_of(row["QUERY PLAN"][0]["Plan"])
        if node.get("Relation Name") == "runs_live" and "Index Name" in node
    ]
    by_id = [condition for index, condition in scans if index == "runs_live_pkey"]
    assert by_id and all(by_id), f"the primary key is read from one end to the other: {scans}"
    assert {index for index, _ in scans} <= {"runs_live_pkey", "runs_live_deferred"}, scans


def nodes_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(inner for part in node.get("Plans", []) for inner in nodes_of(part))]
