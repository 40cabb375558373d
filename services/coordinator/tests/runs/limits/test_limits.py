"""Limits of jobs, keys, pools and start rates, and the deferred queue: against PostgreSQL, turn by turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.loops import assign
from toban_coordinator.store.limits import limits
from toban_domain.errors import ErrorCode
from toban_store.errors import OutcomeUnknown, Refused, TooLong
from toban_store.tx import FencedTx, fenced_tx

LOCK_IS_WAITED_FOR = (
    "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


async def ready(world: Any, make: Any, slots: int = 100, **concurrency: Any) -> None:
    await world.executor(slots=slots)
    await world.apply(make.job(concurrency=concurrency))


@pytest.mark.seed(190, 191, 192, 193, 199)
async def test_no_more_runs_than_the_limit_are_live(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, limit=3)
    runs = await world.start(count=8)
    await limited.turns(2)
    assert len(await limited.live()) == 3 and (await limited.states())["DEFERRED"] == 5
    assert await world.events(runs[-1]) == ["created", "deferred"]
    for _ in runs:
        live = await limited.live()
        assert await limited.held("job:hello") == len(live) <= 3
        await limited.end(live[0])
        await limited.turns()
    assert (await limited.states())["SUCCEEDED"] == 8
    # The oldest first.
    assert [order.key.run_id for _, order in world.orders.starts] == runs


async def test_the_fast_path_obeys_a_limit(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, limit=1)
    await world.turn("assign")
    await world.start_again()
    await world.turn("assign")
    await world.start_again(count=3)
    await limited.turns(2)
    assert len(await limited.live()) == 1


async def test_an_operators_limit_holds_for_runs_that_are_live_already(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make)
    live = await world.start(count=3)
    await world.turn("assign")
    await world.sql("INSERT INTO scheduler.limits (name, value) VALUES ('job:hello', 3)")
    await world.turn("limits")
    [late] = await world.start()
    await limited.turns(2)
    assert await world.state(late) == "DEFERRED"
    await limited.end(live[0])
    await limited.turns()
    assert await world.state(late) == "ASSIGNED"


@pytest.mark.seed(192)
async def test_a_limit_that_is_taken_away_lets_all_go(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, limit=1)
    await world.start(count=5)
    await limited.turns()
    assert (await limited.states())["DEFERRED"] == 4
    await world.apply(make.job())
    await limited.turns(2)
    assert len(await limited.live()) == 5


@pytest.mark.seed(195)
async def test_a_limit_of_zero_is_none(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, limit=0)
    await world.start(count=5)
    await limited.turns(2)
    assert len(await limited.live()) == 5


@pytest.mark.seed(194)
async def test_a_closed_limit_starts_nothing(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, limit=-1)
    [run] = await world.start()
    await limited.turns(2)
    assert await world.state(run) == "DEFERRED"


async def test_a_retry_takes_a_slot_again(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=9)
    await world.apply(
        make.job(concurrency={"limit": 1}, retry={"max_retries": 1, "backoff_seconds": [0]}),
    )
    first, second = await world.start(count=2)
    await limited.turns(2)
    await limited.end(first, "FAILED")
    await limited.turns(2)
    assert len(await limited.live()) == 1
    # The one that waits goes before the retry of the other.
    assert await world.state(second) == "ASSIGNED" and await world.state(first) == "DEFERRED"
    await limited.end(second)
    await limited.turns()
    assert await world.state(first) == "ASSIGNED"


async def test_each_key_has_its_own_limit(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, limit_key="customer", limit_per_key=1)
    await world.start(payload_json='{"customer": "a"}', count=3)
    [other] = await world.start(payload_json='{"customer": "b"}')
    await limited.turns(2)
    assert len(await limited.live()) == 2 and await world.state(other) == "ASSIGNED"


async def test_a_limit_is_counted_again_only_when_half_of_it_may_be_taken(
    world: Any, make: Any, limited: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    usage_for = limits.usage_for

    async def count(t: Any, keys: Any, ids: Any) -> Any:
        counted.append(len(ids))
        return await usage_for(t, keys, ids)

    monkeypatch.setattr(limits, "usage_for", count)
    await ready(world, make, limit=10)
    turns = []
    for _ in range(7):
        await world.start()
        await world.turn("assign")
        turns.append(len(counted))
    # The first two turns count, since the first one finds that the job has a limit now, and so does each one from the sixth run on.
    assert turns[0] < turns[1] == turns[4] and turns[5] == turns[4] + 1 and turns[6] == turns[5] + 1
    assert await limited.held("job:hello") == len(await limited.live()) == 7
    for run in (await limited.live())[:6]:
        await limited.end(run)
    counted.clear()
    for _ in range(2):
        await world.start()
        await world.turn("assign")
    assert len(counted) == 1 and await limited.held("job:hello") == 3


async def test_what_waits_for_a_limit_is_not_passed_by_what_was_counted_before(
    world: Any, make: Any, limited: Any
) -> None:
    await world.executor(slots=100)
    await world.sql("INSERT INTO scheduler.limits (name, value) VALUES ('pool:p', 20)")
    await world.apply(
        make.job("big", concurrency={"pools": {"p": 19}}), make.job("small", concurrency={"pools": {"p": 1}})
    )
    await world.start(job="small", count=2)
    await limited.turns()
    [big] = await world.start(job="big")
    await limited.turn("assign")
    [small] = await world.start(job="small")
    await limited.turn("assign")
    assert await world.state(big) == await world.state(small) == "DEFERRED"


async def test_pools_are_shared_by_jobs_with_weights(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=20)
    await world.sql("INSERT INTO scheduler.limits (name, value) VALUES ('pool:licences', 4)")
    await world.apply(
        make.job("big", concurrency={"pools": {"licences": 3}}),
        make.job("small", concurrency={"pools": {"licences": 1}}),
    )
    [first] = await world.start("big")
    await limited.turns()
    [second] = await world.start("big")
    await limited.turns()
    smalls = await world.start("small", count=2)
    await limited.turns()
    # The large one that waits is not overtaken for ever: small ones wait behind it.
    assert [await world.state(run) for run in (first, second, *smalls)] == ["ASSIGNED", *["DEFERRED"] * 3]
    await limited.end(first)
    await limited.turns(2)
    assert [await world.state(run) for run in (second, *smalls)] == ["ASSIGNED", "ASSIGNED", "DEFERRED"]


async def test_a_run_takes_all_that_it_needs_or_nothing(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=20)
    await world.sql("INSERT INTO scheduler.limits (name, value) VALUES ('pool:a', 1), ('pool:b', 1)")
    await world.apply(
        make.job("ab", concurrency={"pools": {"a": 1, "b": 1}}),
        make.job("ba", concurrency={"pools": {"b": 1, "a": 1}}),
        make.job("b", concurrency={"pools": {"b": 1}}),
    )
    [b] = await world.start("b")
    await limited.turns()
    await world.start("ab", count=10)
    await world.start("ba", count=10)
    await limited.turns(2)
    held = await world.sql("SELECT key, run_id FROM scheduler.limit_holds")
    assert [(row["key"], row["run_id"]) for row in held] == [("pool:b", b)]
    ended = 0
    for _ in range(21):
        [live] = await limited.live()
        await limited.end(live)
        ended += 1
        await limited.turns(3)
    assert ended == 21 and (await limited.states())["SUCCEEDED"] == 21


async def test_no_more_runs_start_than_the_rate_allows(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, start_rate={"runs": 2, "per_seconds": 60})
    await world.start(count=5)
    await limited.turns(3)
    for run in await limited.live():
        await limited.end(run)
    await limited.turns(2)
    assert (await limited.states()) == {"SUCCEEDED": 2, "DEFERRED": 3}
    await world.sql("UPDATE scheduler.limit_starts SET at = at - interval '61 seconds'")
    await limited.turns(2)
    assert len(await limited.live()) == 2


async def test_a_deferred_run_waits_only_so_long(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=9)
    await world.apply(
        make.job(concurrency={"limit": 1}, max_wait_seconds=60),
        make.job("late", concurrency={"limit": -1}, skip_late_after_seconds=30),
    )
    _, waiting = await world.start(count=2)
    [late] = await world.start("late")
    await limited.turns(2)
    await world.turn("reap")
    assert await world.state(waiting) == await world.state(late) == "DEFERRED"
    await world.later(61)
    await world.turn("reap")
    assert (await world.run(waiting))["reason"] == "max_wait" and await world.state(waiting) == "EXPIRED"
    assert (await world.run(late))["reason"] == "late" and await world.state(late) == "SKIPPED"


async def test_a_deferred_run_can_be_canceled(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, limit=1)
    _, waiting = await world.start(count=2)
    await limited.turns(2)
    await world.cancel(waiting)
    assert await world.state(waiting) == "CANCELED"


async def test_runs_of_slots_and_events_have_the_same_limit(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=20)
    await world.apply(
        make.job(concurrency={"limit": 2, "policy": "allow"}),
        *(make.schedule(f"s{i}") for i in range(3)),
    )
    await world.steady()
    await world.turn("fire")
    await world.start(count=2)
    await world.at(world.now() + timedelta(seconds=10))
    await limited.turns(3)
    assert len(await limited.live()) == 2


async def test_a_lost_executor_gives_nothing_back_before_its_runs_move(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, limit=2)
    await world.start(count=4)
    await limited.turns(2)
    first = set(await limited.live())
    await world.sql("UPDATE scheduler.executors SET state = 'off', off_at = now()")
    await world.executor(2, slots=9)
    for _ in range(3):
        await world.turn("reap")
        await limited.turns()
        assert len(await limited.live()) <= 2
    assert len(first) == 2
    for _ in range(8):
        for run in await limited.live():
            await limited.end(run)
        await limited.turns(2)
    assert (await limited.states())["SUCCEEDED"] == 4
    assert await limited.held("job:hello") == 0
    world.loops["limits"]._work.__self__._clear_at = 0.0
    await world.turn("limits")
    assert await world.sql("SELECT * FROM scheduler.limit_holds") == []


@pytest.mark.seed(198)
async def test_a_new_leader_counts_what_the_old_one_sent(world: Any, make: Any, limited: Any, new_term: Any) -> None:
    await ready(world, make, limit=2)
    await world.start(count=5)
    await limited.turns(2)
    await world.sender.close()
    world.take(await new_term(2))
    await limited.turns(3)
    assert len(await limited.live()) == 2
    for _ in range(5):
        for run in await limited.live():
            await limited.end(run)
        await limited.turns(2)
    assert (await limited.states()) == {"SUCCEEDED": 5}


@pytest.mark.seed(202)
async def test_ends_and_starts_at_the_same_moment_never_exceed_the_limit(world: Any, make: Any, limited: Any) -> None:
    await ready(world, make, limit=3)
    await world.start(count=40)

    async def ends() -> None:
        for run in await limited.live():
            await limited.end(run)

    async def work(name: str) -> None:
        # A turn that does not fit into its bound comes again.
        with suppress(TooLong):
            await world.loops[name]._work()
            await world.sender.idle()

    seen = []
    for _ in range(200):
        await limited.beat()
        await asyncio.gather(work("resume"), ends(), work("assign"), ends())
        seen.append(len(await limited.live()))
        if (await limited.states())["SUCCEEDED"] == 40:
            break
    assert max(seen) <= 3 and (await limited.states()) == {"SUCCEEDED": 40}


@pytest.mark.parametrize("weight", [1, 2])
async def test_a_run_that_no_executor_takes_keeps_its_slot_for_a_moment_only(
    world: Any, make: Any, limited: Any, weight: int
) -> None:
    await world.executor(slots=9)
    await world.sql("INSERT INTO scheduler.limits (name, value) VALUES ('pool:p', %(w)s)", w=weight)
    await world.apply(
        make.job("gpu", selector={"labels": {"gpu": "a"}}, concurrency={"pools": {"p": weight}}),
        make.job("any", concurrency={"pools": {"p": weight}}),
    )
    [first] = await world.start("any")
    await limited.turns()
    [gpu] = await world.start("gpu")
    [second] = await world.start("any")
    await limited.turns()
    await limited.end(first)
    await limited.turns()
    assert await world.state(gpu) == "PENDING" and await world.state(second) == "DEFERRED"
    await world.sql("UPDATE scheduler.runs_live SET resumed_at = resumed_at - interval '6 seconds'")
    await limited.turns()
    assert await world.state(second) == "ASSIGNED"


class LateCommit:
    """A fenced_tx that sends its COMMIT only when `release` is set: its caller hears before that the outcome is unknown."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.over: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def __call__(self, *args: Any, **options: Any) -> AsyncIterator[FencedTx]:
        if self.over is not None:
            async with fenced_tx(*args, **options) as t:
                yield t
            return
        inner = fenced_tx(*args, **options)
        t = await inner.__aenter__()
        yield t
        # PostgreSQL would end it before the test has come to its commit.
        await t.execute("SET LOCAL idle_in_transaction_session_timeout = 0")

        async def commit() -> None:
            await self.release.wait()
            await inner.__aexit__(None, None, None)

        self.over = asyncio.create_task(commit())
        raise OutcomeUnknown(ErrorCode.UNAVAILABLE, "the connection is lost")


async def test_a_commit_of_unknown_outcome_is_counted_before_the_next_run_starts(
    world: Any, make: Any, limited: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(world, make, limit=1)
    [warm] = await world.start()
    await limited.turns()
    await limited.end(warm)
    [first] = await world.start()
    late = LateCommit()
    monkeypatch.setattr(assign, "fenced_tx", late)
    with pytest.raises(OutcomeUnknown):
        await world.turn("assign")
    assert await world.state(first) == "PENDING"
    [second] = await world.start()
    await world.sql("UPDATE scheduler.runs_live SET priority = 10 WHERE id = %(id)s", id=second)
    turn = asyncio.create_task(world.turn("assign"))
    # On a machine so slow that it does not fit into its bound, it comes again after the commit.
    while not turn.done() and not await world.sql(LOCK_IS_WAITED_FOR):
        pass
    late.release.set()
    with suppress(TooLong):
        await turn
    assert late.over is not None
    await late.over
    assert await limited.live() == [first]
    await limited.turns(2)
    assert await world.state(second) == "DEFERRED"


async def test_what_was_counted_beside_a_commit_of_unknown_outcome_bounds_nothing(
    world: Any, make: Any, limited: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(world, make, limit=10)
    [warm] = await world.start()
    await limited.turns()
    await limited.end(warm)
    await world.start(count=8)
    late = LateCommit()
    monkeypatch.setattr(assign, "fenced_tx", late)
    with pytest.raises(OutcomeUnknown):
        await world.turn("assign")
    # It sends one of those again, and one more; it has counted before the commit of the others.
    await world.start()
    turn = asyncio.create_task(world.turn("assign"))
    while not turn.done() and not await world.sql(LOCK_IS_WAITED_FOR):
        pass
    late.release.set()
    with suppress(TooLong):
        await turn
    assert late.over is not None
    await late.over
    for count in (1, 3):
        await world.start(count=count)
        # Not loop `limits`, after whose turn everything is counted again.
        await limited.turn("assign")
    assert await limited.held("job:hello") == len(await limited.live()) == 10


async def test_every_part_of_a_turn_counts_after_a_commit_of_unknown_outcome(
    world: Any, make: Any, limited: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that PostgreSQL refuses splits the turn; its last part comes after a commit with a known outcome."""
    await ready(world, make, limit=2)
    await world.apply(make.job("plain"))
    [warm] = await world.start()
    await limited.turns()
    await limited.end(warm)
    [first] = await world.start()
    late = LateCommit()
    monkeypatch.setattr(assign, "fenced_tx", late)
    with pytest.raises(OutcomeUnknown):
        await world.turn("assign")
    runs = [*(await world.start("plain")), *(await world.start(count=2)), *(await world.start("plain"))]
    bad, second, third, _ = runs
    # In this order: the bad one with the second, and the third in another part.
    for priority, run in zip((10, 9, 8, 7), runs, strict=True):
        await world.sql("UPDATE scheduler.runs_live SET priority = %(p)s WHERE id = %(id)s", p=priority, id=run)
    place = assign.runs_assign.place

    async def refusing(t: Any, placements: Any, *more: Any) -> dict[int, str]:
        if bad in {one.run_id for one in placements}:
            raise Refused("refused", sqlstate="22000")
        return await place(t, placements, *more)

    monkeypatch.setattr(assign.runs_assign, "place", refusing)
    turn = asyncio.create_task(world.turn("assign"))
    while not turn.done() and not await world.sql(LOCK_IS_WAITED_FOR):
        pass
    late.release.set()
    with suppress(TooLong):
        await turn
    assert late.over is not None
    await late.over
    assert {*await limited.live(job_name="hello")} <= {first, second}, "no more than two at a time"
    for _ in range(3):
        with suppress(TooLong):
            await limited.turns()
    assert await limited.live(job_name="hello") == [first, second] and await world.state(third) == "DEFERRED"
