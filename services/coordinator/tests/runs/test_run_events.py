"""The view run_events: what rows of runs and attempts tell, beside what is stored, each change once and in order."""

from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.store.cluster import changes, read_models
from toban_store.tx import autocommit

# An end that the executor's clock has so far ahead is one of now, however slow the test is.
AHEAD = timedelta(minutes=1)
PLAIN = [("created", "", "PENDING"), ("dispatched", "PENDING", "ASSIGNED"), ("succeeded", "ASSIGNED", "SUCCEEDED")]


async def told(world: Any, run: int) -> list[tuple[str, str, str]]:
    async with autocommit(world.pool) as t:
        return [(row["type"], row["from_state"], row["to_state"]) for row in await read_models.events(t, run)]


async def stored(world: Any, run: int) -> list[str]:
    rows = await world.sql("SELECT type FROM scheduler.job_events WHERE run_id = %(id)s ORDER BY at", id=run)
    return [row["type"] for row in rows]


@pytest.fixture
async def ready(world: Any, make: Any) -> Any:
    await world.executor()
    await world.apply(make.job(), make.schedule())
    return world


async def test_a_plain_run_stores_no_event(ready: Any, make: Any) -> None:
    [run] = await ready.start()
    assert await told(ready, run) == PLAIN[:1]
    await ready.turn("assign")
    assert await told(ready, run) == PLAIN[:2]
    await ready.report(ready.key(run), make.outcome(at=ready.now() + AHEAD))
    assert await told(ready, run) == PLAIN
    assert await stored(ready, run) == []
    async with autocommit(ready.pool) as t:
        by_whom = [row["actor"] for row in await read_models.events(t, run)]
    assert by_whom == ["admin-cli", "", ""]


async def test_a_start_that_was_committed_after_the_end_comes_before_it(ready: Any, make: Any) -> None:
    [run] = await ready.start()
    await ready.turn("assign")
    await ready.report(ready.key(run), ready.now())
    await ready.report(ready.key(run), make.outcome(at=ready.now() + AHEAD))
    # As when the report of the start took longer than the rest of the job.
    await ready.sql("UPDATE scheduler.job_events SET at = at + interval '1 second' WHERE run_id = %(r)s", r=run)
    assert await told(ready, run) == [
        *PLAIN[:2],
        ("started", "ASSIGNED", "RUNNING"),
        ("succeeded", "RUNNING", "SUCCEEDED"),
    ]
    assert await stored(ready, run) == ["started"]


async def test_what_the_release_before_has_stored_is_told_once(ready: Any, make: Any) -> None:
    old, half = await ready.start(count=2)
    await ready.turn("assign")
    for run in (old, half):
        await ready.report(ready.key(run), make.outcome(at=ready.now() + AHEAD))
    token = str(ready.key(old).token)
    rows = [("created", "", "PENDING", {}), ("dispatched", "PENDING", "ASSIGNED", {"token": token})]
    for kind, source, target, metadata in [*rows, ("succeeded", "ASSIGNED", "SUCCEEDED", {})]:
        await insert(ready, old, kind, source, target, metadata)
    # One that this release has gone on with.
    await insert(ready, half, "created", "", "PENDING", {})
    for run, kept in ((old, 3), (half, 1)):
        assert sorted(await told(ready, run)) == sorted(PLAIN)
        assert len(await stored(ready, run)) == kept


async def insert(world: Any, run: int, kind: str, source: str, target: str, metadata: dict[str, str]) -> None:
    await world.sql(
        "INSERT INTO scheduler.job_events (run_id, type, from_state, to_state, metadata)"
        " VALUES (%(r)s, %(k)s, %(s)s, %(t)s, jsonb_object(%(n)s::text[], %(v)s::text[]))",
        r=run,
        k=kind,
        s=source,
        t=target,
        n=list(metadata),
        v=list(metadata.values()),
    )


async def test_a_named_executor_is_where_the_dispatch_comes_from(ready: Any) -> None:
    [run] = await ready.start()
    await insert(ready, run, "assigned", "PENDING", "ASSIGNED", {})
    await ready.turn("assign")
    assert (await told(ready, run))[-1] == ("dispatched", "ASSIGNED", "ASSIGNED")


@pytest.mark.parametrize(("seconds", "kept"), [(0, []), (10, ["succeeded"])])
async def test_an_end_is_seen_by_who_watches_also_when_it_was_reported_late(
    ready: Any, make: Any, seconds: int, kept: list[str]
) -> None:
    [run] = await ready.start()
    await ready.turn("assign")
    await ready.sql(
        "UPDATE scheduler.runs_live SET dispatched_at = dispatched_at - interval '20 s', created_at = created_at - interval '20 s'"
    )
    await ready.sql("UPDATE scheduler.job_attempts SET dispatched_at = dispatched_at - interval '20 s'")
    async with autocommit(ready.pool) as t:
        assert run not in (await changes.look(t)).runs
    at = ready.now() + (AHEAD if seconds == 0 else -timedelta(seconds=seconds))
    await ready.report(ready.key(run), make.outcome(at=at))
    async with autocommit(ready.pool) as t:
        assert run in (await changes.look(t)).runs
    assert await stored(ready, run) == kept
    assert await told(ready, run) == PLAIN


async def test_more_new_runs_than_are_named_are_noticed(ready: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_EVENTS", 4)
    await ready.start(count=4)
    async with autocommit(ready.pool) as t:
        assert not (await changes.look(t)).more
    await ready.start(count=30)
    async with autocommit(ready.pool) as t:
        assert (await changes.look(t)).more
