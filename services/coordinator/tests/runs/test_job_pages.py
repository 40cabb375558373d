"""Work over many jobs in pages, over a real PostgreSQL: what is slow or refused for one job keeps no other from its turn."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from toban_coordinator.app.notifications import job_pages
from toban_coordinator.app.notifications.job_pages import JobPages, PartProgress
from toban_coordinator.loops import prune
from toban_coordinator.store.notifications import notices
from toban_domain.errors import ErrorCode
from toban_observability.metrics import samples
from toban_runtime.clock import SystemClock
from toban_store.errors import DidNotHappen, Refused, TooLong
from toban_store.tx import tx
from toban_testing.clock import FakeClock

SLOW = TooLong(ErrorCode.DEADLINE_EXCEEDED, "canceling statement due to statement timeout", sqlstate="57014")
STARVED = TooLong(ErrorCode.DEADLINE_EXCEEDED, "a fenced transaction took longer than 200 ms: cut the work")
REFUSED = Refused("invalid input syntax", sqlstate="22P02")


@pytest.fixture
async def silent(world: Any, make: Any) -> list[int]:
    """Jobs that have not succeeded for longer than they expect, but each did, 13 hours ago."""
    await world.sql(
        "INSERT INTO scheduler.webhook_targets (name, origin, secret, states, created_by, updated_by)"
        " VALUES ('chat', 'https://chat.example', 'webhook/chat', '{}', 'ada', 'ada')"
    )
    rule = {"webhook": "chat", "on": ["missing"]}
    names = [f"job-{number}" for number in range(5)]
    await world.apply(*(make.job(name, notify=[rule], expect_success_within_seconds=3600) for name in names))
    await world.sql("UPDATE scheduler.job_definitions SET created_at = now() - interval '1 day'")
    await world.sql(
        "INSERT INTO scheduler.runs_history (id, definition_id, definition_version, job_name, origin, scheduled_for, state, finished_at)"
        " SELECT id, id, 1, name, 'demand', now(), 'SUCCEEDED', now() - interval '13 hours' FROM scheduler.job_definitions"
    )
    return [row["id"] for row in await world.sql("SELECT id FROM scheduler.job_definitions ORDER BY id")]


def value(name: str, **labels: str) -> float:
    return sum(value for found, value in samples(name) if labels.items() <= found.items())


@pytest.mark.usefixtures("production_bounds")
async def test_one_job_that_waits_keeps_the_notices_of_no_other(world: Any, silent: list[int]) -> None:
    slow = silent[2]
    before = value("toban_part_jobs_left_out_total", part="silent_jobs", kind="slow")
    async with tx(world.administrator) as t:
        await t.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await t._run("INSERT INTO scheduler.job_silences (definition_id, last_at) VALUES (%(i)s, now())", {"i": slow})
        # Until the round is finished: each turn stops after its time.
        while (await world.turn("notices")).next_in is not None:
            pass
        noted = [row["definition_id"] for row in await world.sql("SELECT definition_id FROM scheduler.job_silences")]
        await t._run("DELETE FROM scheduler.job_silences", {})
    assert sorted(noted) == [one for one in silent if one != slow]
    assert value("toban_part_jobs_left_out_total", part="silent_jobs", kind="slow") > before
    await world.turn("notices")
    assert len(await world.sql("SELECT 1 FROM scheduler.job_silences")) == len(silent), "the next round gets it"


@pytest.mark.usefixtures("production_bounds")
async def test_one_job_that_waits_keeps_nothing_from_being_pruned(world: Any, silent: list[int]) -> None:
    await world.sql("SELECT scheduler.ensure_partitions(current_date - 95, current_date - 95)")
    await world.sql(
        "INSERT INTO scheduler.event_keys (event_type, dedupe_key, event_id, seen_at) VALUES ('t', 'k', 1, now() - interval '99 days')"
    )
    old = "SELECT 1 FROM pg_class WHERE relname = 'runs_history_' || to_char(current_date - 95, 'YYYYMMDD')"
    assert await world.sql(old)
    async with tx(world.administrator) as t:
        await t.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await t._run("INSERT INTO scheduler.job_successes (definition_id, at) VALUES (%(i)s, now())", {"i": silent[2]})
        for _ in range(20):
            if (await world.turn("prune")).next_in is None:
                break
        kept = [row["definition_id"] for row in await world.sql("SELECT definition_id FROM scheduler.job_successes")]
        assert not await world.sql(old) and not await world.sql("SELECT 1 FROM scheduler.event_keys")
    assert sorted(kept) == [one for one in silent if one != silent[2]]


async def test_partitions_wait_until_all_successes_are_kept(world: Any, silent: list[int], monkeypatch: Any) -> None:
    monkeypatch.setattr(job_pages, "PAGE_ROWS", 2)
    monkeypatch.setattr(job_pages, "TURN_SECONDS", 0.0)
    world.take(world.term)
    kept, dropped = [], []
    drop = prune.retention.drop_partition

    async def counted(t: Any, **named: Any) -> str:
        dropped.append(len(await world.sql("SELECT 1 FROM scheduler.job_successes")))
        return await drop(t, **named)

    monkeypatch.setattr(prune.retention, "drop_partition", counted)
    monkeypatch.setattr(job_pages, "TURN_SECONDS", 1e-9)
    while (await world.turn("prune")).next_in is not None:
        kept.append(len(await world.sql("SELECT 1 FROM scheduler.job_successes")))
        assert not dropped, "a success could be dropped before it was kept elsewhere"
    assert (kept, dropped) == ([2, 4], [5])


async def pages_of(world: Any, error: Any, bad: int) -> tuple[JobPages, list[int]]:
    done: list[int] = []

    async def work(jobs: Any, _most: int) -> None:
        if bad in jobs:
            raise error
        done.extend(jobs)

    pages = JobPages("test", pool=world.pool, clock=SystemClock(), read=notices.expecting_jobs, work=work)
    return pages, done


@pytest.mark.parametrize(("error", "kind"), [(SLOW, "slow"), (REFUSED, "refused")])
async def test_a_bad_job_is_left_out_of_a_round(world: Any, silent: list[int], error: Any, kind: str) -> None:
    pages, done = await pages_of(world, error, silent[0])
    before = value("toban_part_jobs_left_out_total", part="test", kind=kind)
    with capture_logs() as lines:
        assert await pages.turn() and pages.failed is None
    assert done == silent[1:]
    assert value("toban_part_jobs_left_out_total", part="test", kind=kind) == before + 1
    assert [line["definition_id"] for line in lines if line["log_level"] == "error"] == [silent[0]]


@pytest.mark.parametrize("error", [STARVED, DidNotHappen(ErrorCode.UNAVAILABLE, "the connection is lost")])
async def test_what_is_no_fault_of_a_job_is_done_by_the_next_turn(world: Any, silent: list[int], error: Any) -> None:
    pages, done = await pages_of(world, error, silent[0])
    assert not await pages.turn() and pages.failed is error and done == []
    pages._work = (await pages_of(world, error, 0))[0]._work
    assert await pages.turn() and pages.failed is None


async def test_a_part_that_is_behind_is_in_the_metric_and_in_the_log() -> None:
    clock = FakeClock()
    progress = PartProgress("some", clock)
    with capture_logs() as lines:
        progress.note(finished=False)
        assert value("toban_part_behind_seconds", part="some") == 0
        for _ in range(13):
            await clock.advance(10)
            progress.note(finished=False)
        assert value("toban_part_behind_seconds", part="some") == 130
        progress.note(finished=True)
    assert value("toban_part_behind_seconds", part="some") == 0
    assert [(line["log_level"], line.get("seconds")) for line in lines] == [
        ("warning", 60),
        ("warning", 120),
        ("info", None),
    ]
