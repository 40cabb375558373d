"""Each move of a run names the state and the token that it expects: what has changed since it was thought of moves nothing (I4, I10)."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from toban_coordinator.store.placement.queued_orders import DoneOrder
from toban_coordinator.store.runs import attempts, runs_finish, runs_reap
from toban_coordinator.store.runs.runs_finish import HeldEnd
from toban_domain.outcome import AttemptKey
from toban_domain.run import RunState
from toban_domain.transitions import CloseAttempt, Finish, Orphan, Release, RequestCancel, Started
from toban_store.tx import fenced_tx

ASSIGNED, RUNNING, ORPHANED, PENDING = RunState.ASSIGNED, RunState.RUNNING, RunState.ORPHANED, RunState.PENDING
Move = Callable[[Any, int, int, RunState], Awaitable[Any]]


def finish(target: RunState) -> Move:
    async def move(t: Any, run: int, token: int, source: RunState) -> Any:
        return await runs_finish.finish(t, [Finish(run_id=run, source=source, token=token, target=target, reason="x")])

    return move


async def release(t: Any, run: int, token: int, source: RunState) -> Any:
    return await runs_finish.release(
        t, [Release(run_id=run, source=source, token=token, attempt=1, lost_count=0, event="released")]
    )


async def orphan(t: Any, run: int, token: int, source: RunState) -> Any:
    return await runs_finish.orphan(t, [Orphan(run_id=run, source=source, token=token, message="x")])


async def cancel(t: Any, run: int, token: int, source: RunState) -> Any:
    return await runs_finish.request_cancel(
        t, [RequestCancel(run_id=run, source=source, token=token, reason="x", mode="", actor="x")]
    )


MOVES: dict[str, Move] = {
    "finish": finish(RunState.FAILED),
    "release": release,
    "orphan": orphan,
    "cancel": cancel,
}


async def sent(world: Any, make: Any) -> tuple[int, int]:
    """A run that was sent, and its token."""
    await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    await world.turn("assign")
    return run, world.key(run).token


@pytest.mark.seed(32, 167)
@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("change", ["a newer token", "an older token", "another state"])
async def test_what_has_changed_is_left_alone(world: Any, make: Any, name: str, change: str) -> None:
    run, token = await sent(world, make)
    expected = {
        "a newer token": (token - 1, ASSIGNED),
        "an older token": (token + 1, ASSIGNED),
        "another state": (token, RUNNING),
    }
    before = await world.run(run)
    async with fenced_tx(world.pool, world.term) as t:
        assert not await MOVES[name](t, run, *expected[change])
    assert await world.run(run) == before and len(await world.events(run)) == 2
    async with fenced_tx(world.pool, world.term) as t:
        assert len(await MOVES[name](t, run, token, ASSIGNED)) == 1
    assert (await world.run(run))["state"] != "ASSIGNED"


@pytest.mark.seed(40)
async def test_a_start_of_another_token_or_of_a_run_that_is_not_assigned_begins_nothing(world: Any, make: Any) -> None:
    run, token = await sent(world, make)
    async with fenced_tx(world.pool, world.term) as t:
        assert await runs_finish.mark_started(t, [Started(run_id=run, token=token + 1, at=world.now())]) == set()
        assert await runs_finish.mark_started(t, [Started(run_id=run, token=token, at=world.now())]) == {run}
        before = await t.fetch_one("SELECT * FROM scheduler.runs_live")
        assert await runs_finish.mark_started(t, [Started(run_id=run, token=token, at=world.now())]) == set()
        assert await t.fetch_one("SELECT * FROM scheduler.runs_live") == before


@pytest.mark.parametrize("target", [RunState.EXPIRED, RunState.SKIPPED])
async def test_an_end_that_the_table_of_moves_does_not_have_is_none(world: Any, make: Any, target: RunState) -> None:
    run, token = await sent(world, make)
    async with fenced_tx(world.pool, world.term) as t:
        assert await finish(target)(t, run, token, ASSIGNED) == []
    assert await world.state(run) == "ASSIGNED"


@pytest.mark.seed(41)
async def test_a_success_counts_for_the_holder_of_the_run_under_its_token(world: Any, make: Any) -> None:
    """The quick way of reports, which does not look before."""
    run, token = await sent(world, make)
    other = await world.executor(2)
    async with fenced_tx(world.pool, world.term) as t:
        for incarnation, key in ((other, token), (world.incarnations[0], token + 1)):
            ends = [HeldEnd(incarnation, AttemptKey(run, key), make.outcome())]
            assert (await runs_finish.finish_held(t, RunState.SUCCEEDED, ends)).finished == []
        # Also when several report it in one statement.
        ends = [HeldEnd(incarnation, AttemptKey(run, token), make.outcome()) for incarnation in world.incarnations]
        [finished] = (await runs_finish.finish_held(t, RunState.SUCCEEDED, ends)).finished
        assert (finished.incarnation, finished.token) == (world.incarnations[0], token)


async def test_the_stored_outcome_of_an_attempt_stays(world: Any, make: Any) -> None:
    run, token = await sent(world, make)
    first, second = make.outcome("FAILED", exit_code=3), make.outcome("FAILED", exit_code=4)
    async with fenced_tx(world.pool, world.term) as t:
        moves = [
            CloseAttempt(run_id=run, token=token, state="FAILED", reason="x", outcome=one) for one in (first, second)
        ]
        assert [await attempts.close(t, [move]) for move in moves] == [1, 0]
    [row] = await world.sql("SELECT exit_code, outcome FROM scheduler.job_attempts")
    assert (row["exit_code"], row["outcome"]["exit_code"]) == (3, 3)


@pytest.mark.parametrize(
    ("kind", "result"), [("cancel", "gone"), ("revoke", "running"), ("revoke", "STALE_EPOCH"), ("revoke", "")]
)
def test_only_the_answer_gone_to_a_revoke_is_a_promise(kind: str, result: str) -> None:
    assert DoneOrder(id=1, kind=kind, run_id=5, token=6, result=result).gone is None
    assert DoneOrder(id=1, kind="revoke", run_id=5, token=6, result="gone").gone == AttemptKey(5, 6)


async def test_a_run_that_another_executor_has_by_now_is_not_reaped(world: Any, make: Any) -> None:
    """Read as held by one that is off, and placed again before it was locked."""
    run, _ = await sent(world, make)
    async with fenced_tx(world.pool, world.term) as t:
        assert await runs_reap.lock_held_by_off(t, [run]) == []
    await world.sql("UPDATE scheduler.executors SET state = 'off', off_at = now()")
    async with fenced_tx(world.pool, world.term) as t:
        assert [live.id for live in await runs_reap.lock_held_by_off(t, [run])] == [run]
