"""Successes that several executors report share a statement, and one that PostgreSQL refuses holds up no executor."""

import asyncio
from typing import Any

import pytest

from toban_coordinator.app import certain_ends
from toban_coordinator.app.certain_ends import certain_of
from toban_coordinator.app.report_queue import ReportQueue
from toban_coordinator.decide.report import Answer, Report
from toban_coordinator.store import runs_finish
from toban_store.tx import Tx


async def two_executors(world: Any, make: Any, *jobs: str) -> dict[str, list[int]]:
    """Runs of `jobs` on two executors of one slot each, by incarnation."""
    for worker in (1, 2):
        await world.executor(worker, slots=1)
    await world.apply(*(make.job(job) for job in jobs))
    runs = [run for job in jobs for run in await world.start(job)]
    await world.turn("assign")
    held: dict[str, list[int]] = {incarnation: [] for incarnation in world.incarnations}
    for run in runs:
        held[str((await world.run(run))["assigned_incarnation"])].append(run)
    assert all(held.values())
    return held


async def report_all(world: Any, make: Any, queue: ReportQueue, held: dict[str, list[int]]) -> list[list[Answer]]:
    calls = [
        queue.commit(incarnation, [Report(world.key(run), 2, make.outcome()) for run in runs])
        for incarnation, runs in held.items()
    ]
    return [[one.answer for one in answers] for answers in await asyncio.gather(*calls)]


async def test_successes_of_several_executors_share_a_statement(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = await two_executors(world, make, "one", "two")
    statements: list[int] = []
    finish = runs_finish.finish_held

    async def counted(t: Any, target: Any, ends: Any, **more: Any) -> Any:
        statements.append(len(ends))
        return await finish(t, target, ends, **more)

    monkeypatch.setattr(certain_ends.runs_finish, "finish_held", counted)
    assert await report_all(world, make, ReportQueue(pool=world.pool), held) == [[Answer.ACCEPTED]] * 2
    assert statements == [2]
    await world.finished(*(run for runs in held.values() for run in runs))


WATCHERS = {
    "nothing": "SELECT 1",
    "a trigger": "INSERT INTO scheduler.event_triggers (name, event_type, run_end, definition_id, spec_hash, spec)"
    """ SELECT 'after', '@run-end:other', true, id, '', '{"on_run_end": {"states": ["SUCCEEDED"]}}' FROM scheduler.job_definitions LIMIT 1""",
    "a webhook": "INSERT INTO scheduler.webhook_targets (name, origin, secret, states, created_by, updated_by)"
    " VALUES ('pager', 'https://pager.example', '', '{SUCCEEDED}', 'ada', 'ada')",
    "a note about silence": "INSERT INTO scheduler.job_silences (definition_id, last_at) SELECT id, now() FROM scheduler.job_definitions",
}


@pytest.mark.parametrize("who", WATCHERS)
async def test_a_success_that_something_waits_for_is_ended_with_all_that_follows(
    world: Any, make: Any, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    fetch_all = Tx.fetch_all

    async def noted(self: Tx, sql: str, *arguments: Any) -> Any:
        statements.append(sql)
        return await fetch_all(self, sql, *arguments)

    monkeypatch.setattr(Tx, "fetch_all", noted)
    await world.apply(make.job())
    await world.sql(WATCHERS[who])
    await world.executor(slots=9)
    queue, ends = ReportQueue(pool=world.pool), (runs_finish._sql.finish_unwatched, runs_finish._sql.finish)

    async def end_one() -> list[str]:
        [run] = await world.start()
        await world.turn("assign")
        statements.clear()
        assert await report_all(world, make, queue, {world.incarnations[0]: [run]}) == [[Answer.ACCEPTED]]
        assert await world.state(run) == "SUCCEEDED"
        return [statement for statement in statements if statement in ends]

    lean, whole = [ends[0]], [ends[1]]
    assert await end_one() == (lean if who == "nothing" else lean + whole)
    assert await end_one() == (lean if who == "nothing" else whole), "as seen last"
    await world.sql("UPDATE scheduler.event_triggers SET enabled = false")
    await world.sql("UPDATE scheduler.webhook_targets SET enabled = false")
    await end_one()
    assert await end_one() == lean, "nothing waits any more"


async def test_an_executor_whose_success_is_refused_holds_up_no_other(world: Any, make: Any) -> None:
    held = await two_executors(world, make, "good", "poison")
    await world.sql("ALTER TABLE scheduler.runs_history ADD CHECK (job_name <> 'poison')")
    answers = await report_all(world, make, ReportQueue(pool=world.pool), held)
    jobs = [(await world.run(runs[0]))["job_name"] for runs in held.values()]
    expected = {"good": [Answer.ACCEPTED], "poison": [Answer.REFUSED]}
    assert answers == [expected[job] for job in jobs]


async def test_an_executor_ends_no_run_of_another(world: Any, make: Any) -> None:
    held = await two_executors(world, make, "one", "two")
    mine, yours = held.items()
    swapped = {mine[0]: yours[1], yours[0]: yours[1]}
    answers = await report_all(world, make, ReportQueue(pool=world.pool), swapped)
    assert answers[0][0] not in (Answer.ACCEPTED, Answer.ALREADY_ACCEPTED) and answers[1] == [Answer.ACCEPTED]
    assert await world.state(mine[1][0]) == "ASSIGNED" and await world.state(yours[1][0]) == "SUCCEEDED"


def test_an_attempt_with_several_outcomes_is_looked_at(make: Any) -> None:
    key, other = (1, 1), (2, 2)
    reports = [
        Report(key, 2, make.outcome("FAILED")),  # type: ignore[arg-type]
        Report(key, 2, make.outcome()),  # type: ignore[arg-type]
        Report(other, 2, make.outcome()),  # type: ignore[arg-type]
    ]
    assert list(certain_of(reports)) == [other]
