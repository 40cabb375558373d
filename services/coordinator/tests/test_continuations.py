"""Confirmations that attempts may continue, over a real PostgreSQL: a grant for runs that are still held, or nothing (docs/fencing.md 3.7)."""

import asyncio

import psycopg
import pytest

from toban_coordinator.app.runs.continuations import MAX_ATTEMPTS, Continuations
from toban_coordinator.store.executors import executor_fencing, executors
from toban_coordinator.store.runs import continuations
from toban_coordinator.store.runs.continuations import MAX_LOST_NOTES, Question
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_store.errors import TooLong
from toban_store.pool import SESSION
from toban_store.tx import fenced_tx
from toban_testing.executor_rows import hold, register, run_state
from toban_testing.fake_coordinator import FixedSettings
from toban_testing.waiting import until_lock_wait

IDS = IdSource()


@pytest.fixture
def ask(pool):
    asked = Continuations(pool=pool, settings=FixedSettings(), clock=SystemClock())

    async def of(incarnation, *keys, echo=0, nonce=0):
        return await asked.ask(Question(incarnation=incarnation, echo=echo, nonce=nonce, keys=keys))

    return of


async def events(sql, run):
    found = await sql("SELECT type FROM scheduler.job_events WHERE run_id = %s ORDER BY at", run)
    return [row[0] for row in found]


async def grant_seq(sql, incarnation):
    return (await sql("SELECT grant_seq FROM scheduler.executors WHERE incarnation = %s", incarnation))[0][0]


@pytest.mark.seed(56, 97)
async def test_a_confirmation_is_a_committed_grant(pool, sql, ask):
    incarnation = await register(pool)
    run = await hold(sql, incarnation, "RUNNING", 71)
    before = await sql("SELECT last_heartbeat_at FROM scheduler.executors")
    answer = await ask(incarnation, AttemptKey(run, 71))
    assert (answer.verdict.granted, answer.verdict.grant_seq, dict(answer.refused)) == (True, 1, {})
    assert await grant_seq(sql, incarnation) == 1
    [(state, seconds)] = await sql(
        "SELECT continuation_state, extract(epoch FROM continuation_check_deadline_at - continuation_check_started_at)::float"
        " FROM scheduler.runs_live"
    )
    assert (state, round(seconds, 3)) == ("CONFIRMING", 1.9)
    assert await events(sql, run) == ["continuation_confirmed"]
    assert await sql("SELECT last_heartbeat_at FROM scheduler.executors") == before, "it is no heartbeat"


async def test_the_same_answer_is_one_event_a_minute(pool, sql, ask):
    incarnation = await register(pool)
    run = await hold(sql, incarnation, "RUNNING", 71)
    for echo in range(3):
        assert (await ask(incarnation, AttemptKey(run, 71), echo=echo)).verdict.granted
    assert await events(sql, run) == ["continuation_confirmed"]


@pytest.mark.parametrize(
    ("state", "token", "reason"), [("CANCEL_REQUESTED", 71, "canceled"), ("RUNNING", 70, "not_held")]
)
async def test_no_attempt_that_may_continue_no_grant(pool, sql, ask, state, token, reason):
    incarnation = await register(pool)
    run = await hold(sql, incarnation, state, 71)
    key = AttemptKey(run, token)
    answer = await ask(incarnation, key)
    assert (answer.verdict.granted, dict(answer.refused)) == (False, {key: reason})
    assert reason in answer.why
    assert await grant_seq(sql, incarnation) == 0
    assert await sql("SELECT continuation_state FROM scheduler.runs_live") == [("",)]


async def test_the_run_of_another_executor_is_not_held(pool, sql, ask):
    incarnation, other = await register(pool), await register(pool, instance="x2")
    key = AttemptKey(await hold(sql, other, "RUNNING", 71), 71)
    answer = await ask(incarnation, key)
    assert (answer.verdict.granted, dict(answer.refused)) == (False, {key: "not_held"})
    assert await events(sql, key.run_id) == [], "an executor writes nothing about a run that it never held"


async def test_what_may_continue_is_confirmed_beside_what_may_not(pool, sql, ask):
    incarnation = await register(pool)
    kept = AttemptKey(await hold(sql, incarnation, "RUNNING", 71), 71)
    canceled = AttemptKey(await hold(sql, incarnation, "CANCEL_REQUESTED", 72), 72)
    moved = AttemptKey(await hold(sql, incarnation, "RUNNING", 73), 73)
    await sql("UPDATE scheduler.runs_live SET token = 99 WHERE id = %s", moved.run_id)
    answer = await ask(incarnation, kept, canceled, moved)
    assert answer.verdict.granted
    assert dict(answer.refused) == {canceled: "canceled", moved: "not_held"}
    assert [await events(sql, key.run_id) for key in (kept, canceled, moved)] == [
        ["continuation_confirmed"],
        ["continuation_refused"],
        ["continuation_refused"],
    ]


@pytest.mark.parametrize("state", ["on", "draining", "detached"])
async def test_states_that_give_grants(pool, sql, ask, state):
    incarnation = await register(pool)
    run = await hold(sql, incarnation, "RUNNING", 71)
    await sql(
        "UPDATE scheduler.executors SET state = %s, detach_mode = CASE WHEN %s = 'detached' THEN 'let_finish' ELSE '' END",
        state,
        state,
    )
    assert (await ask(incarnation, AttemptKey(run, 71))).verdict.granted


@pytest.mark.parametrize("state", ["cut", "off"])
async def test_states_that_give_none(pool, sql, ask, state):
    incarnation = await register(pool)
    run = await hold(sql, incarnation, "RUNNING", 71)
    await sql("UPDATE scheduler.executors SET state = %s, off_at = CASE WHEN %s = 'off' THEN now() END", state, state)
    answer = await ask(incarnation, AttemptKey(run, 71))
    assert (answer.verdict.granted, answer.verdict.state, dict(answer.refused)) == (False, state, {})
    assert await grant_seq(sql, incarnation) == 0


async def test_an_executor_that_is_to_stop_gets_no_confirmation(pool, sql, ask):
    incarnation = await register(pool)
    key = AttemptKey(await hold(sql, incarnation, "RUNNING", 71), 71)
    await sql("UPDATE scheduler.executors SET state = 'detached', detach_mode = 'stop'")
    answer = await ask(incarnation, key)
    assert (answer.verdict.granted, dict(answer.refused)) == (False, {key: "detached"})
    assert await events(sql, key.run_id) == ["continuation_refused"]


async def test_answers_that_do_not_arrive_withhold_a_confirmation_as_a_grant(pool, sql, ask):
    incarnation = await register(pool)
    key = AttemptKey(await hold(sql, incarnation, "RUNNING", 71), 71)
    await sql("UPDATE scheduler.executors SET grant_seq = 9")
    answer = await ask(incarnation, key, echo=5)
    assert (answer.verdict.granted, answer.verdict.grant_seq, dict(answer.refused)) == (False, 9, {})
    assert "echo" in answer.why
    assert (await ask(incarnation, key, echo=9)).verdict.granted


async def test_of_two_copies_one_gets_no_confirmation(pool, sql, ask):
    """A cloned machine asks with what the incarnation had before."""
    incarnation = await register(pool)
    key = AttemptKey(await hold(sql, incarnation, "RUNNING", 71), 71)
    one, two = [(await ask(incarnation, key, echo=2)).verdict.nonce for _ in range(2)]
    assert len({0, one, two}) == 3
    assert (await ask(incarnation, key, echo=2, nonce=one)).verdict.granted
    late = await ask(incarnation, key, echo=2, nonce=two)
    assert (late.verdict.granted, late.verdict.nonce, dict(late.refused)) == (False, 0, {})
    assert "another copy" in late.why


async def test_questions_of_one_incarnation_in_a_batch_share_no_grant(pool, sql):
    incarnation = await register(pool)
    key = AttemptKey(await hold(sql, incarnation, "RUNNING", 71), 71)
    asked = Continuations(pool=pool, settings=FixedSettings(), clock=SystemClock())
    other = await register(pool, instance="x2")
    questions = [Question(incarnation=name, echo=0, nonce=0, keys=[key]) for name in (other, incarnation, incarnation)]
    _, first, last = await asyncio.gather(*(asked.ask(question) for question in questions), return_exceptions=True)
    assert isinstance(first, TobanError) and first.code == ErrorCode.UNAVAILABLE
    assert last.verdict.granted
    assert await grant_seq(sql, incarnation) == 1


@pytest.mark.seed(100)
async def test_a_confirmation_and_a_fence_never_both_win(pool, sql, term):
    for number in range(20):
        incarnation = await register(pool)
        run = await hold(sql, incarnation, "RUNNING", 100 + number)
        question = Question(incarnation=incarnation, echo=0, nonce=0, keys=[AttemptKey(run, 100 + number)])

        async def fenced(name=incarnation):
            wanted = executor_fencing.Fence(incarnation=name, grant_seq=0, reason="test")
            async with fenced_tx(pool, term) as t:
                return (await executor_fencing.fence(t, [wanted])).incarnations

        verdicts, off = await asyncio.gather(continuations.confirm(pool, [question], seconds=2.0), fenced())
        assert verdicts[incarnation].granted != bool(off)
        assert (await run_state(sql, run) == "ORPHANED") == bool(off)


@pytest.fixture
async def holder(pg_url):
    """A transaction that holds its rows for as long as the test wants."""
    async with await psycopg.AsyncConnection.connect(pg_url) as connection:
        yield connection


async def patient(pool, question):
    """The answer, however often the bound on waiting for a lock cuts the question off."""
    while True:
        try:
            return (await continuations.confirm(pool, [question], seconds=2.0))[question.incarnation]
        except TobanError:
            continue


async def test_a_confirmation_waits_for_a_fence_that_has_the_row_and_loses(pool, sql, holder):
    incarnation = await register(pool)
    run = await hold(sql, incarnation, "RUNNING", 71)
    await holder.execute("UPDATE scheduler.executors SET state = 'off', off_at = now()")
    await holder.execute("UPDATE scheduler.runs_live SET state = 'ORPHANED'")
    question = Question(incarnation=incarnation, echo=0, nonce=0, keys=[AttemptKey(run, 71)])
    waiting = asyncio.create_task(patient(pool, question))
    await until_lock_wait(sql)
    await holder.commit()
    verdict = await waiting
    assert (verdict.granted, verdict.state, verdict.held) == (False, "off", {})


async def test_a_cancel_that_comes_first_wins(pool, sql, holder):
    incarnation = await register(pool)
    run = await hold(sql, incarnation, "RUNNING", 71)
    await holder.execute("UPDATE scheduler.runs_live SET state = 'CANCEL_REQUESTED'")
    question = Question(incarnation=incarnation, echo=0, nonce=0, keys=[AttemptKey(run, 71)])
    waiting = asyncio.create_task(patient(pool, question))
    await until_lock_wait(sql)
    await holder.commit()
    verdict = await waiting
    assert (verdict.granted, verdict.held) == (False, {AttemptKey(run, 71): True})


@pytest.mark.seed(100)
async def test_confirming_keeps_an_executor_out_of_detach_and_cut_but_not_of_the_fence(pool, sql, term, ask):
    incarnation = await register(pool)
    run = await hold(sql, incarnation, "RUNNING", 71)
    await sql(
        "INSERT INTO scheduler.executor_orders (incarnation, kind, payload, epoch, serial, created_at)"
        " VALUES (%s, 'drain', '{}', 1, 1, now() - interval '1 hour')",
        incarnation,
    )
    [(order,)] = await sql("SELECT id FROM scheduler.executor_orders")
    assert (await ask(incarnation, AttemptKey(run, 71))).verdict.granted
    async with fenced_tx(pool, term) as t:
        assert await executors.detach(t, [incarnation], mode="") == []
        assert await executors.cut_silent(t, [order]) == []
        assert await executors.detach(t, [incarnation], mode="let_finish"), "an operator's word counts"
    await sql("UPDATE scheduler.executors SET state = 'on', detach_mode = ''")
    await sql("UPDATE scheduler.runs_live SET continuation_check_deadline_at = now() - interval '1 second'")
    async with fenced_tx(pool, term) as t:
        assert await executors.cut_silent(t, [order])
    await sql("UPDATE scheduler.executors SET state = 'on'")
    async with fenced_tx(pool, term) as t:
        assert await executors.detach(t, [incarnation], mode="")
    await sql("UPDATE scheduler.runs_live SET continuation_check_deadline_at = now() + interval '1 minute'")
    async with fenced_tx(pool, term) as t:
        wanted = executor_fencing.Fence(incarnation=incarnation, grant_seq=1, reason="test")
        assert (await executor_fencing.fence(t, [wanted])).runs == 1


async def test_questions_without_attempts_or_of_a_stranger_are_refused(pool, ask):
    with pytest.raises(TobanError) as none:
        await ask(await register(pool))
    assert none.value.code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(TobanError) as stranger:
        await ask(IDS.uuid(), AttemptKey(1, 1))
    assert stranger.value.code is ErrorCode.INCARNATION_UNKNOWN


async def test_a_detach_or_a_cut_that_waits_for_a_confirmation_sees_it(pool, sql, term, holder):
    """What a statement reads beside the row that it waits for is as old as its begin."""
    incarnation = await register(pool)
    run = await hold(sql, incarnation, "RUNNING", 71)
    await sql(
        "INSERT INTO scheduler.executor_orders (incarnation, kind, payload, epoch, serial) VALUES (%s, 'drain', '{}', 1, 1)",
        incarnation,
    )
    [(order,)] = await sql("SELECT id FROM scheduler.executor_orders")
    for kind in ("detach", "cut"):
        await sql("UPDATE scheduler.runs_live SET continuation_state = '', continuation_check_deadline_at = NULL")
        # What a confirmation does, not committed yet.
        await holder.execute("UPDATE scheduler.executors SET grant_seq = grant_seq + 1")
        await holder.execute(
            "UPDATE scheduler.runs_live SET continuation_state = 'CONFIRMING', continuation_check_deadline_at = now() + interval '1 minute'"
        )
        waiting = asyncio.create_task(no_new_work(pool, term, kind, incarnation, order))
        await until_lock_wait(sql)
        await holder.commit()
        assert await waiting == [], kind
    assert await run_state(sql, run) == "RUNNING"


async def no_new_work(pool, term, kind, incarnation, order):
    """The executors that are detached or cut, however often the bounds of a fenced transaction end it."""
    while True:
        try:
            async with fenced_tx(pool, term) as t:
                if kind == "detach":
                    return await executors.detach(t, [incarnation], mode="")
                return await executors.cut_silent(t, [order])
        except TooLong:
            continue


@pytest.fixture
def statement_timeout(monkeypatch, at_most):
    """Production's in the timing test."""
    monkeypatch.setitem(SESSION, "statement_timeout", f"{at_most(2):g}s")


@pytest.mark.usefixtures("statement_timeout")
async def test_all_attempts_that_an_executor_may_have_are_confirmed_in_time(pool, sql, ask):
    """Also after smaller requests, for which PostgreSQL has cached a generic plan."""
    incarnation = await register(pool)
    run = await hold(sql, incarnation, "RUNNING", 71)
    await sql("ANALYZE scheduler.runs_live")
    for echo in range(12):
        await ask(incarnation, AttemptKey(run, 71), *(AttemptKey(n, n) for n in range(101, 201)), echo=echo)
    await sql("DELETE FROM scheduler.runs_live")
    await sql(
        "INSERT INTO scheduler.runs_live (definition_id, definition_version, job_name, origin, scheduled_for, state, token, log_day,"
        " assigned_incarnation, assigned_worker_id, assigned_at, dispatched_at, started_at)"
        " SELECT 1, 1, 'j', 'demand', now(), 'RUNNING', 1000 + i, current_date, %s, 1, now(), now(), now() FROM generate_series(1, %s) AS i",
        incarnation,
        MAX_ATTEMPTS,
    )
    await sql(
        "INSERT INTO scheduler.job_attempts (log_day, run_id, token, attempt, leader_epoch, incarnation, worker_id, dispatched_at)"
        " SELECT log_day, id, token, 1, 1, assigned_incarnation, 1, now() FROM scheduler.runs_live"
    )
    keys = [AttemptKey(run, token) for run, token in await sql("SELECT id, token FROM scheduler.runs_live")]
    answer = await ask(incarnation, *keys, echo=12)
    assert answer.verdict.granted and not answer.refused
    assert await sql("SELECT count(*) FROM scheduler.runs_live WHERE continuation_state = 'CONFIRMING'") == [
        (MAX_ATTEMPTS,)
    ]


async def test_what_an_executor_lost_is_looked_up_for_a_few_attempts_only(pool, sql, ask):
    """It may name what it likes, and the look reads the partitions of all days."""
    incarnation = await register(pool)
    run = await hold(sql, incarnation, "RUNNING", 71)
    await sql(
        "INSERT INTO scheduler.job_attempts (log_day, run_id, token, attempt, leader_epoch, incarnation, worker_id, dispatched_at)"
        " SELECT current_date, 1000 + i, i, 1, 1, %s, 1, now() FROM generate_series(1, 300) AS i",
        incarnation,
    )
    lost = [AttemptKey(1000 + i, i) for i in range(1, 301)]
    answer = await ask(incarnation, *lost, AttemptKey(run, 71))
    assert answer.verdict.granted and set(answer.refused.values()) == {"not_held"} and len(answer.refused) == 300
    events = "SELECT count(*) FROM scheduler.job_events WHERE type = 'continuation_refused'"
    assert await sql(events) == [(MAX_LOST_NOTES,)]


async def test_of_the_questions_that_an_executor_gave_up_one_is_kept(pool, sql, holder):
    """It may ask without waiting for the answers, however slow PostgreSQL is."""
    incarnation = await register(pool)
    key = AttemptKey(await hold(sql, incarnation, "RUNNING", 71), 71)
    asked = Continuations(pool=pool, settings=FixedSettings(), clock=SystemClock())
    await holder.execute("SELECT 1 FROM scheduler.executors FOR UPDATE")
    # Each would be a batch of its own.
    strange = [AttemptKey(10_000 + i, i) for i in range(1, MAX_ATTEMPTS)]
    question = Question(incarnation=incarnation, echo=0, nonce=0, keys=[key, *strange])
    first = asyncio.create_task(asked.ask(question))
    await until_lock_wait(sql)
    given_up = [asyncio.create_task(asked.ask(question)) for _ in range(50)]
    await asyncio.sleep(0)
    for task in given_up[:-1]:
        task.cancel()
    await holder.commit()
    *earlier, last = await asyncio.gather(*given_up, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in earlier)
    assert last.verdict.granted
    await asyncio.gather(first, return_exceptions=True)
    assert await grant_seq(sql, incarnation) == last.verdict.grant_seq <= 2
