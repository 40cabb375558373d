"""What the leader remembers of notifications, over a real PostgreSQL: beside statements that end runs, and for longer than rows are kept."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from toban_coordinator.store.notifications import notices
from toban_coordinator.store.runs import runs_finish
from toban_domain.run import RunState
from toban_domain.transitions import Finish
from toban_store.tx import fenced_tx, tx
from toban_testing.waiting import LOCK_WAITS, until_async

Document = dict[str, Any]
pytestmark = pytest.mark.usefixtures("chat")


@pytest.fixture
async def chat(world: Any) -> None:
    """A webhook that gets only what jobs ask for."""
    await world.executor()
    await world.sql(
        "INSERT INTO scheduler.webhook_targets (name, origin, secret, states, created_by, updated_by)"
        " VALUES ('chat', 'https://chat.example', 'webhook/chat', '{}', 'ada', 'ada')"
    )


@pytest.fixture
def sent(world: Any) -> Callable[..., Any]:
    """(type, run) of everything in the outbox, in its order."""

    async def read() -> list[tuple[str, int | None]]:
        rows = await world.sql("SELECT type, run_id FROM scheduler.webhook_deliveries ORDER BY id")
        return [(row["type"], row["run_id"]) for row in rows]

    return read


def job(make: Any, *rules: Document, **spec: Any) -> Document:
    found: Document = make.job("load", retry={"max_attempts": 1}, notify=list(rules), **spec)
    return found


def rule(*on: str, **more: Any) -> Document:
    return {"webhook": "chat", "on": list(on), **more}


@pytest.fixture
async def silent(world: Any, make: Any, chat: None) -> int:
    """A run under way, of a job that has not succeeded for longer than it expects."""
    await world.apply(job(make, rule("missing", "recovered"), expect_success_within_seconds=3600))
    await world.sql("UPDATE scheduler.job_definitions SET created_at = now() - interval '2 hours'")
    [run] = await world.start("load")
    await world.turn("assign")
    await world.report(world.key(run), world.now())
    return int(run)


@pytest.fixture
def succeed(world: Any) -> Callable[..., Any]:
    """Ends a run in a transaction of the test."""

    async def finish(t: Any, run: int) -> None:
        source, target = RunState.RUNNING, RunState.SUCCEEDED
        move = Finish(run_id=run, source=source, token=world.key(run).token, target=target, attempt_state="SUCCEEDED")
        assert await runs_finish.finish(t, [move])

    return finish


async def test_a_success_that_commits_beside_the_note_ends_it(world: Any, silent: int, succeed: Any, sent: Any) -> None:
    """Neither of the two statements sees what the other one has written."""
    async with fenced_tx(world.pool, world.term) as t:
        await succeed(t, silent)
        await world.turn("notices")
    assert await sent() == [("job.missing", None)]
    for _ in range(2):
        await world.turn("notices")
        assert await world.sql("SELECT * FROM scheduler.job_silences") == []
    assert await sent() == [("job.missing", None), ("job.recovered", silent)]


async def test_a_success_before_the_note_is_seen_by_it(world: Any, silent: int, succeed: Any, sent: Any) -> None:
    async with fenced_tx(world.pool, world.term) as t:
        found = await notices.silent_jobs(t, await notices.expecting_jobs(t, 0, 10))
    async with fenced_tx(world.pool, world.term) as t:
        await succeed(t, silent)
    async with fenced_tx(world.pool, world.term) as t:
        assert found and await notices.note_silences(t, found) == []
    assert await sent() == []


async def test_the_last_success_is_known_for_longer_than_its_run(
    world: Any, make: Any, silent: int, succeed: Any, sent: Any
) -> None:
    """A job that expects a success every 100 days, with a history of a few days."""
    await world.apply(job(make, rule("missing"), expect_success_within_seconds=100 * 86400))
    async with fenced_tx(world.pool, world.term) as t:
        await succeed(t, silent)
    await world.sql("UPDATE scheduler.job_definitions SET created_at = now() - interval '1 year'")
    # As if it had been 50 days ago, in a partition of its day.
    async with tx(world.administrator) as t:
        await t._run("SELECT scheduler.ensure_partitions(current_date - 50, current_date - 50)", {})
        await t._run("SET LOCAL session_replication_role = replica", {})
        await t._run("UPDATE scheduler.runs_history SET finished_at = finished_at - interval '50 days'", {})
    world.settings.set(history_retention_days=30)
    for _ in range(2):
        await world.turn("prune", "notices")
    assert await world.sql("SELECT id FROM scheduler.runs_history") == [], "its run is gone"
    assert await sent() == []


async def test_a_run_of_weeks_is_long_once(world: Any, make: Any, sent: Any) -> None:
    await world.apply(job(make, rule("long", "failed", long_after_seconds=60)))
    [run] = await world.start("load")
    await world.turn("assign")
    await world.report(world.key(run), world.now())
    await world.sql("UPDATE scheduler.runs_live SET started_at = now() - interval '30 days'")
    await world.turn("notices")
    await world.sql("UPDATE scheduler.webhook_deliveries SET created_at = now() - interval '20 days'")
    await world.turn("prune", "notices")
    assert await sent() == [("job.long", run)]
    await world.report(world.key(run), make.outcome("FAILED"))
    await world.turn("prune", "notices")
    assert await sent() == [("job.failed", run)], "it went with its run"


@pytest.mark.parametrize("beside", [False, True])
async def test_a_late_run_that_is_skipped_is_late_once(world: Any, make: Any, sent: Any, beside: bool) -> None:
    """`beside`: the statement that skips it began before the other event was committed."""
    await world.apply(job(make, rule("late", late_after_seconds=60), rule("late", late_after_seconds=90)))
    [run] = await world.start("load")
    await world.sql("UPDATE scheduler.runs_live SET scheduled_for = now() - interval '1 hour'")
    skip = Finish(run_id=run, source=RunState.PENDING, token=None, target=RunState.SKIPPED, reason="late")

    async def skipped() -> None:
        async with fenced_tx(world.pool, world.term) as t:
            await runs_finish.finish(t, [skip])

    if beside:
        async with fenced_tx(world.pool, world.term) as t:
            await notices.add(t, await notices.overdue_runs(t, await notices.jobs_with_rules(t, 0, 10), limit=10))
            skipping = asyncio.create_task(skipped())
            await until_async(lambda: world.sql(LOCK_WAITS), lambda rows: rows or skipping.done())
        await skipping
    else:
        await world.turn("notices")
        await skipped()
    assert await sent() == [("job.late", run)]


async def test_only_runs_of_jobs_with_a_rule_are_read(world: Any, make: Any) -> None:
    await world.apply(job(make, rule("long", "late", long_after_seconds=60, late_after_seconds=60)), make.job("other"))
    await world.start("load", 2)
    [other] = await world.start("other")
    async with tx(world.administrator) as t:
        await t._run(
            "INSERT INTO scheduler.runs_live SELECT n.* FROM scheduler.runs_live r CROSS JOIN generate_series(1, 2000) i"
            " CROSS JOIN LATERAL jsonb_populate_record(r, jsonb_build_object('id', r.id + i, 'definition_id', 100 + i %% 50)) n"
            " WHERE r.id = %(id)s",
            {"id": other},
        )
        await t._run("ANALYZE scheduler.runs_live", {})
    async with tx(world.pool) as t:
        statement = f"EXPLAIN (ANALYZE, FORMAT JSON) {notices._sql.overdue_runs}"
        jobs = await notices.jobs_with_rules(t, 0, 10)
        [row] = await t.fetch_all(statement, {"ids": jobs, "limit": 10}, prepare=False)
    [scan] = [node for node in nodes_of(row["QUERY PLAN"][0]["Plan"]) if node.get("Relation Name") == "runs_live"]
    assert scan["Index Name"] == "runs_live_definition" and scan["Actual Rows"] <= 2, scan


def nodes_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(inner for part in node.get("Plans", []) for inner in nodes_of(part))]


async def test_the_log_names_jobs_and_runs(world: Any, make: Any, silent: int) -> None:
    await world.apply(job(make, rule("long", "missing", long_after_seconds=60), expect_success_within_seconds=3600))
    await world.sql("UPDATE scheduler.runs_live SET started_at = now() - interval '1 hour'")
    with capture_logs() as lines:
        await world.turn("notices")
    long, missing = [one for one in lines if one.get("job") == "load"]
    assert (long["event"], long["run_id"]) == ("a run lasts longer than it should", silent)
    assert missing["event"] == "a job has not succeeded for longer than it expects"
    assert missing["expected_within_seconds"] == 3600 and missing["since"]
