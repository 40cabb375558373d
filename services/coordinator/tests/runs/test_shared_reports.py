"""Successes that several executors report share a statement, and one that PostgreSQL refuses holds up no executor."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toban_coordinator.app.runs import certain_ends
from toban_coordinator.app.runs.certain_ends import certain_of
from toban_coordinator.app.runs.report_queue import ReportQueue
from toban_coordinator.decide.runs import report as decide
from toban_coordinator.decide.runs.report import Answer, Report
from toban_coordinator.store.runs import runs_finish
from toban_coordinator.store.runs.runs_finish import Finished, HeldEnd
from toban_domain.outcome import AttemptKey, StepResult
from toban_domain.run import RunState
from toban_domain.transitions import Finish
from toban_store.tx import Tx, tx
from toban_testing.variants import rows_of, undone


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
async def test_one_statement_ends_a_success_with_all_that_follows(
    world: Any, make: Any, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for ends of runs is read by the statement that ends them: what was added or disabled a moment ago counts."""
    statements: list[str] = []
    fetch_all = Tx.fetch_all

    async def noted(self: Tx, sql: str, *arguments: Any) -> Any:
        statements.append(sql)
        return await fetch_all(self, sql, *arguments)

    monkeypatch.setattr(Tx, "fetch_all", noted)
    await world.apply(make.job("load"), make.job("other"))
    await world.executor(slots=9)
    queue = ReportQueue(pool=world.pool)

    async def end_one() -> tuple[int, int, int]:
        """The events, deliveries and silences that there are after the end of another run."""
        [run] = await world.start("other")
        await world.turn("assign")
        statements.clear()
        assert await report_all(world, make, queue, {world.incarnations[0]: [run]}) == [[Answer.ACCEPTED]]
        assert await world.state(run) == "SUCCEEDED"
        assert statements.count(runs_finish._sql.finish) == 1
        [row] = await world.sql(
            "SELECT (SELECT count(*) FROM scheduler.events) AS events, (SELECT count(*) FROM scheduler.webhook_deliveries) AS sent,"
            " (SELECT count(*) FROM scheduler.job_silences) AS silences"
        )
        return row["events"], row["sent"], row["silences"]

    assert await end_one() == (0, 0, 0)
    await world.sql(WATCHERS[who])
    follows = {"a trigger": (1, 0, 0), "a webhook": (0, 1, 0), "a note about silence": (0, 0, 1)}.get(who, (0, 0, 0))
    assert await end_one() == follows
    await world.sql("UPDATE scheduler.event_triggers SET enabled = false")
    await world.sql("UPDATE scheduler.webhook_targets SET enabled = false")
    assert await end_one() == follows, "nothing waits any more"


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


INCARNATION = "00000000-0000-4000-8000-00000000000"
# What the end of a run writes, without what differs between two statements of one transaction.
ENDS = {
    "runs_live": (),
    "runs_history": (),
    "job_attempts": (),
    "job_events": ("id", "at"),
    # Of several runs of a group that end by one statement any may be named.
    "succeeded_keys": ("run_id",),
    "events": ("id",),
    "webhook_deliveries": ("id", "event_id"),
    "job_silences": (),
    "fire_ledger": (),
}
# Run n has token n; `reporter` and `token` of a report are right, or not.
RUN = st.fixed_dictionaries(
    {
        "state": st.sampled_from(
            ["ASSIGNED", "RUNNING", "ORPHANED", "CANCEL_REQUESTED", "WAITING_WORKER", "PENDING", "DEFERRED"]
        ),
        "executor": st.integers(1, 2),
        "claimed": st.booleans(),
        "next_step": st.sampled_from([None, None, None, 1]),
        "attempt": st.integers(1, 2),
        "lost_count": st.sampled_from([0, 0, 1]),
        "group": st.sampled_from([None, "once:a", "once:b", "a"]),
    }
)
REPORT = st.fixed_dictionaries(
    {
        "reporter": st.sampled_from([1, 1, 2]),
        "worker": st.sampled_from(["w", "w", "v"]),
        "token": st.sampled_from([0, 0, 0, 100]),
        "started": st.sampled_from([None, -9, -1, 9]),
        "finished": st.sampled_from([-200_000, -2, 0, 30]),
        "fields": st.fixed_dictionaries(
            {},
            optional={
                "error_summary": st.sampled_from(["", "late"]),
                "exit_code": st.sampled_from([None, 3]),
                "last_line": st.just("done"),
                "last_seq": st.integers(0, 9),
                "result_json": st.just('{"a": [1, "ü"]}'),
                "log_ref": st.just("s3://logs"),
            },
        ),
        "steps": st.booleans(),
    }
)
LIVE = """
WITH made AS (
    INSERT INTO scheduler.runs_live (definition_id, definition_version, job_name, origin, scheduled_for, created_at, state, attempt, lost_count,
        next_step, concurrency_group, payload, token, log_day, leader_epoch, assigned_incarnation, assigned_worker_id, assigned_at, dispatched_at,
        started_at, locked_by, lock_ttl_ms, locked_until, worker_type, deferred_on)
    SELECT d.id, d.version, d.name, 'demand', now() - interval '70 s', now() - interval '65 s', r.state::scheduler.run_state, r.attempt, r.lost_count,
           r.next_step, r."group", jsonb_build_object('n', r.n), h.token, h.day, h.token, e.incarnation, e.worker_id, h.at, h.at,
           CASE WHEN r.state IN ('RUNNING', 'ORPHANED') THEN h.at + interval '1 s' END, CASE WHEN w.claimed THEN 'w' END,
           CASE WHEN w.claimed THEN 1000 END, CASE WHEN w.claimed THEN now() END, CASE WHEN r.state = 'WAITING_WORKER' THEN 'model' END,
           CASE WHEN r.state = 'DEFERRED' THEN 'pool:p' END
      FROM jsonb_to_recordset(%(runs)s::jsonb)
           AS r(n bigint, state text, executor text, claimed boolean, next_step integer, attempt integer, lost_count integer, "group" text)
      JOIN scheduler.job_definitions d ON d.name = 'one'
      CROSS JOIN LATERAL (SELECT r.state = 'WAITING_WORKER' OR (r.state = 'CANCEL_REQUESTED' AND r.claimed) AS claimed) w
      LEFT JOIN LATERAL (SELECT r.n AS token, (now() AT TIME ZONE 'UTC')::date AS day, now() - interval '60 s' AS at
                          WHERE r.state NOT IN ('PENDING', 'DEFERRED')) h ON true
      LEFT JOIN scheduler.executors e ON e.instance = 'e' || r.executor AND h.token IS NOT NULL AND NOT w.claimed
     ORDER BY r.n
    RETURNING id, payload, token, log_day, attempt, leader_epoch, assigned_incarnation, assigned_worker_id, dispatched_at
), sent AS (
    INSERT INTO scheduler.job_attempts (log_day, run_id, token, attempt, leader_epoch, incarnation, worker_id, dispatched_at)
    SELECT log_day, id, token, attempt, leader_epoch, assigned_incarnation, assigned_worker_id, dispatched_at
      FROM made WHERE assigned_incarnation IS NOT NULL
)
SELECT id, payload -> 'n' AS n FROM made
"""


@pytest.fixture
async def ending_world(world: Any, make: Any) -> Any:
    for worker in (1, 2):
        await world.executor(worker)
    await world.apply(make.job("one"), make.job("other"))
    return world


def success(make: Any, world: Any, report: dict[str, Any]) -> Any:
    now = world.now()
    started, finished = report["started"], now + timedelta(seconds=report["finished"])
    steps = (StepResult(0, finished, finished),) if report["steps"] else ()
    times = {"started_at": None if started is None else now + timedelta(seconds=started)}
    return make.outcome(at=finished, **times, **report["fields"], steps=steps)


async def left(t: Tx, finished: list[Finished]) -> tuple[Any, ...]:
    """The runs that a statement has ended, and the rows that it leaves."""
    return sorted(finished, key=lambda run: run.id), await rows_of(t, ENDS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(runs=st.lists(st.tuples(RUN, REPORT), max_size=6), who=st.sampled_from(["nothing", "nothing", *WATCHERS]))
async def test_each_statement_ends_the_same_runs_in_the_same_way(
    ending_world: Any, make: Any, runs: list[tuple[dict[str, Any], dict[str, Any]]], who: str
) -> None:
    """Successes that are looked at first and that are not, with and without something that waits for ends; and those of external workers."""
    world = ending_world
    async with tx(world.administrator) as t, undone(t):
        await t.execute(WATCHERS[who])
        made = await t.fetch_all(LIVE, {"runs": json.dumps([{"n": n, **run} for n, (run, _) in enumerate(runs, 1)])})
        ids = {row["n"]: row["id"] for row in made}
        reports = {
            AttemptKey(ids[n], n + report["token"]): (report, success(make, world, report))
            for n, (_, report) in enumerate(runs, 1)
        }
        live = await runs_finish.lock_live(t, sorted(ids.values()))

        moves = [
            decide.finish(live[key.run_id], key.token, outcome, RunState.SUCCEEDED)
            for key, (report, outcome) in reports.items()
            if decide.holds(live[key.run_id], key, frozenset({f"{INCARNATION}{report['reporter']}"}))
            and live[key.run_id].next_step is None
        ]
        async with undone(t):
            looked_at = await left(t, await runs_finish.finish(t, moves))
        assert [run.id for run in looked_at[0]] == sorted(move.run_id for move in moves)
        ends = [
            HeldEnd(f"{INCARNATION}{report['reporter']}", key, outcome) for key, (report, outcome) in reports.items()
        ]
        async with undone(t):
            held = await runs_finish.finish_held(t, RunState.SUCCEEDED, ends)
            assert await left(t, held.finished) == looked_at

        claimed = [(key, report["worker"], outcome) for key, (report, outcome) in reports.items()]
        by_worker = [
            Finish(
                run_id=key.run_id,
                source=run.state,
                token=key.token,
                target=RunState.SUCCEEDED,
                attempt_state="SUCCEEDED",
                outcome=outcome,
            )
            for key, worker, outcome in claimed
            if (run := live[key.run_id]).locked_by == worker and run.token == key.token and run.next_step is None
        ]
        async with undone(t):
            looked_at = await left(t, await runs_finish.finish(t, by_worker))
        async with undone(t):
            assert await left(t, await runs_finish.finish_claimed(t, claimed)) == looked_at
