"""The short way of runs on demand: one write makes and places them while nothing waits; else nothing of it happens."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toban_coordinator.store.placement import runs_assign, runs_start_assigned
from toban_coordinator.store.placement.runs_start_assigned import NewPlaced
from toban_coordinator.store.runs import run_traces, runs
from toban_coordinator.store.runs.runs import NewRun
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.traceparent import parse
from toban_domain.transitions import Placement
from toban_observability import tracing
from toban_store.errors import OutcomeUnknown, StoreError
from toban_store.tx import FencedTx, fenced_tx
from toban_testing.variants import rows_of, undone


async def opened(world: Any, make: Any, **spec: Any) -> None:
    """A job, one executor, definitions in memory, and a loop `assign` that has seen that nothing waits."""
    await world.executor()
    await world.apply(make.job(**spec))
    await world.finished(*await world.start_again())
    await world.turn("assign")


def in_a_minute() -> datetime:
    return datetime.now(UTC) + timedelta(minutes=1)  # noqa: TID251


async def test_one_write_makes_and_sends(world: Any, make: Any) -> None:
    await opened(world, make, default_payload={"name": "world"})
    [run] = await world.start_again(payload_json='{"name": "Ada"}')
    await world.sender.idle()
    row = await world.run(run)
    [sent] = [order for _, order in world.orders.starts if order.key.run_id == run]
    assert (row["state"], row["token"], row["leader_epoch"]) == ("ASSIGNED", sent.key.token, world.term.epoch)
    assert row["dispatched_at"] is not None and row["created_by"] == "admin-cli"
    assert (sent.attempt, sent.payload_json, sent.slot) == (1, '{"name":"Ada"}', None)
    assert str(row["log_day"]) == sent.log_day
    assert await world.events(run) == ["created", "dispatched"]
    attempts = await world.sql("SELECT state, token FROM scheduler.job_attempts WHERE run_id = %(id)s", id=run)
    assert attempts == [{"state": "DISPATCHED", "token": sent.key.token}]
    await world.report(sent.key, make.outcome())
    assert await world.state(run) == "SUCCEEDED"


async def test_a_trace_that_cannot_be_kept_fails_nothing(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs are on their way: a caller that hears of a failure would ask for them again."""

    async def broken(*_: Any) -> None:
        raise StoreError(ErrorCode.UNAVAILABLE, "gone")

    await opened(world, make)
    place = parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    monkeypatch.setattr(tracing, "current", lambda: place)
    monkeypatch.setattr(run_traces, "keep", broken)
    [run] = await world.start_again()
    assert await world.state(run) == "ASSIGNED"


async def test_slots_are_never_overfilled(world: Any, make: Any) -> None:
    await opened(world, make)
    made = [run for _ in range(6) for run in await world.start_again()]
    states = [await world.state(run) for run in made]
    assert states == ["ASSIGNED"] * 4 + ["PENDING"] * 2, "four slots; then the long way"
    await world.turn("assign")
    assert [await world.state(run) for run in made] == states
    await world.report(world.key(made[0]), make.outcome())
    await world.turn("assign")
    assert await world.state(made[4]) == "ASSIGNED", "who came first goes first"


async def test_no_run_overtakes_a_waiting_one(world: Any, make: Any) -> None:
    await opened(world, make)
    first = await world.start_again(count=4)
    [waits] = await world.start_again()
    await world.turn("assign")
    await world.report(world.key(first[0]), make.outcome())
    [late] = await world.start_again()
    assert (await world.state(waits), await world.state(late)) == ("PENDING", "PENDING")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE scheduler.executors SET state = 'draining'",
        "UPDATE scheduler.executors SET last_heartbeat_at = now() - interval '1 minute'",
        "UPDATE scheduler.executors SET state = 'off', off_at = now()",
    ],
)
async def test_an_executor_that_takes_nothing_gets_nothing(world: Any, make: Any, change: str) -> None:
    await opened(world, make)
    await world.sql(change)
    [run] = await world.start_again()
    assert await world.state(run) == "PENDING"


async def test_a_deposed_leader_makes_nothing_by_itself(world: Any, make: Any, new_term: Any) -> None:
    await opened(world, make)
    sent = len(world.orders.starts)
    await new_term(2)
    [run] = await world.start_again()
    await world.sender.idle()
    assert await world.state(run) == "PENDING", "as any coordinator: the present leader will place it"
    assert len(world.orders.starts) == sent


async def test_the_end_of_a_term_closes_it(world: Any, make: Any) -> None:
    await opened(world, make)
    await world.loops["assign"]._close()
    [run] = await world.start_again()
    assert await world.state(run) == "PENDING"


async def test_a_definition_that_has_changed_is_looked_up_again(world: Any, make: Any) -> None:
    await opened(world, make)
    await world.apply(make.job(timeout_seconds=7))
    [run] = await world.start_again()
    assert (await world.run(run))["definition_version"] == 2
    await world.apply(make.job(enabled=False))
    with pytest.raises(TobanError, match="disabled"):
        await world.start_again()


async def test_a_taken_key_makes_nothing(world: Any, make: Any) -> None:
    await opened(world, make)
    [run] = await world.start_again(idempotency_key="k")
    assert await world.state(run) == "ASSIGNED"
    assert await world.start_again(idempotency_key="k") == [run]
    await world.turn("assign")
    both = await asyncio.gather(world.start_again(idempotency_key="l"), world.start_again(idempotency_key="l"))
    assert both[0] == both[1]
    assert await world.sql("SELECT count(*) AS n FROM scheduler.runs_live") == [{"n": 2}]


async def test_a_job_keeps_its_key_when_that_of_another_job_is_forgotten(world: Any, make: Any) -> None:
    await world.apply(make.job("other"))
    await opened(world, make)
    [first] = await world.start_again(idempotency_key="k")
    [second] = await world.start_again("other", idempotency_key="k")
    assert second != first
    await world.sql(f"DELETE FROM scheduler.run_idempotency WHERE run_id = {first}")
    await world.turn("assign")
    assert await world.state((await world.start_again("other"))[0]) == "ASSIGNED", "the short way is open"
    assert await world.start_again("other", idempotency_key="k") == [second]


async def test_a_run_for_later_and_a_large_batch_go_the_long_way(world: Any, make: Any) -> None:
    await opened(world, make)
    [later] = await world.start_again(scheduled_for=in_a_minute())
    assert await world.state(later) == "PENDING"
    assert {await world.state(run) for run in await world.start_again(count=33)} == {"PENDING"}


async def test_while_assign_turns_nothing_else_places(world: Any, make: Any) -> None:
    await opened(world, make)
    async with world.fast_path._path.turn:
        [run] = await world.start_again()
    assert await world.state(run) == "PENDING"


async def test_a_call_that_comes_between_two_turns_finds_the_board_that_the_second_leaves(
    world: Any, make: Any
) -> None:
    await opened(world, make)
    way = world.fast_path._path
    await world.start(count=6)
    await way.turn.acquire()
    assign = asyncio.create_task(world.loops["assign"]._work())
    await asyncio.sleep(0)
    call = asyncio.create_task(world.start_again())
    way.turn.release()
    [late], _ = await asyncio.gather(call, assign)
    assert await world.state(late) == "PENDING"


async def test_a_turn_of_assign_that_breaks_leaves_nothing_open(world: Any, make: Any, monkeypatch: Any) -> None:
    await opened(world, make)
    [waits] = await world.start()
    place = runs_assign.place

    async def lost(*arguments: Any) -> Any:
        await place(*arguments)
        raise OutcomeUnknown(ErrorCode.UNAVAILABLE, "the connection was lost")

    monkeypatch.setattr(runs_assign, "place", lost)
    with pytest.raises(OutcomeUnknown):
        await world.turn("assign")
    monkeypatch.undo()
    made = await world.start_again(count=4)
    assert await world.state(waits) == "ASSIGNED"
    assert {await world.state(run) for run in made} == {"PENDING"}, "nobody knows how many slots are free"


async def test_an_executor_that_could_not_be_reached_gets_nothing(world: Any, make: Any) -> None:
    await opened(world, make)
    world.sender.reach.failed(world.incarnations[0])
    [run] = await world.start_again()
    assert await world.state(run) == "PENDING"


async def test_an_executor_that_has_a_successor_gets_nothing(world: Any, make: Any) -> None:
    await opened(world, make)
    await world.executor(2, instance="e1")
    [run] = await world.start_again()
    assert await world.state(run) == "PENDING"


async def test_what_fits_no_executor_holds_up_no_run(world: Any, make: Any) -> None:
    await opened(world, make)
    await world.apply(make.job("gpu", selector={"labels": {"gpu": "yes"}}))
    [stuck] = await world.start("gpu")
    await world.turn("assign")
    [run] = await world.start_again()
    assert (await world.state(stuck), await world.state(run)) == ("PENDING", "ASSIGNED")


async def test_nothing_is_sent_after_the_term(world: Any, make: Any) -> None:
    await opened(world, make)
    way, sent = world.fast_path._path, len(world.orders.starts)
    await way.turn.acquire()
    call = asyncio.create_task(world.start_again())
    await asyncio.sleep(0)
    way.turn.release()
    await world.sender.close()
    [run] = await call
    await world.sender.idle()
    assert len(world.orders.starts) == sent, "the next leader sends it again"
    assert await world.state(run) in ("ASSIGNED", "PENDING")


async def test_a_caller_that_gives_up_changes_nothing(world: Any, make: Any, monkeypatch: Any) -> None:
    await opened(world, make)
    sent = len(world.orders.starts)
    start_assigned, writing = runs_start_assigned.start_assigned, asyncio.Event()

    async def noted(*arguments: Any, **named: Any) -> Any:
        writing.set()
        return await start_assigned(*arguments, **named)

    monkeypatch.setattr(runs_start_assigned, "start_assigned", noted)
    call = asyncio.create_task(world.start_again())
    await writing.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await world.orders.started(sent + 1)
    assert await world.sql("SELECT state::text AS state FROM scheduler.runs_live") == [{"state": "ASSIGNED"}]


# What making and placing a run writes. Both number the runs from the same sequence, which is set back. The two statements of the long way have
# changed a run twice, and their events and its audit carry times of their own.
STARTS = {
    "runs_live": ("version",),
    "job_attempts": (),
    "job_events": ("id", "at"),
    "run_idempotency": (),
    "admin_action_log": ("id", "at"),
    "limit_holds": (),
}
NEW = st.fixed_dictionaries(
    {
        "job": st.sampled_from(["hello", "other"]),
        "executor": st.integers(1, 2),
        "payload": st.sampled_from(["{}", '{"name":"Ada","n":1.5}', '{"text":"a \\"b\\" ü"}']),
        "priority": st.integers(0, 2),
        "scope_id": st.sampled_from(["", "a"]),
        "timeout_seconds": st.sampled_from([0, 60]),
        "max_attempts": st.integers(1, 3),
        "max_lost": st.integers(0, 3),
    }
)
CHANGES = {
    "nothing": "SELECT 1",
    "a definition": "UPDATE scheduler.job_definitions SET enabled = false WHERE name = 'other'",
    "a key": "INSERT INTO scheduler.run_idempotency (key, run_id) VALUES ('k0', 1)",
    "an executor": "UPDATE scheduler.executors SET state = 'draining' WHERE instance = 'e2'",
    "a heartbeat": "UPDATE scheduler.executors SET last_heartbeat_at = now() - interval '1 hour' WHERE instance = 'e2'",
}


@pytest.fixture
async def starting_world(world: Any, make: Any) -> Any:
    for worker in (1, 2):
        await world.executor(worker)
    await world.apply(make.job(), make.job("other"))
    world.administrator.group.pace = world.pool.group.pace
    return world


async def both_ways(t: FencedTx, new: list[NewPlaced]) -> tuple[Any, Any]:
    """The rows that one statement leaves, None where it makes nothing, and those that two leave."""
    await t.execute("SELECT setval('scheduler.run_id_seq', 1000)")
    async with undone(t):
        made = await runs_start_assigned.start_assigned(t, new, actor="ada", fresh_seconds=60, reason="why")
        short = None if made is None else (sorted((run.id, run.log_day) for run in made), await rows_of(t, STARTS))
    await t.execute("SELECT setval('scheduler.run_id_seq', 1000)")
    async with undone(t):
        queued = await runs.enqueue(t, [one.run for one in new], actor="ada", noted="run.start", reason="why")
        placements = [
            Placement(run_id=run.id, token=one.token, incarnation=one.incarnation, next_step=None)
            for one, run in zip(new, queued, strict=False)
            if run.created
        ]
        days = await runs_assign.place(t, placements)
        return short, (sorted(days.items()), await rows_of(t, STARTS))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    requests=st.lists(NEW, min_size=1, max_size=5),
    keys=st.integers(0, 3),
    change=st.sampled_from(["nothing", "nothing", *CHANGES]),
)
async def test_one_statement_leaves_what_two_leave(
    starting_world: Any, requests: list[dict[str, Any]], keys: int, change: str
) -> None:
    """Or it makes nothing: when one of the runs cannot be made and placed now."""
    world = starting_world
    jobs = {row["name"]: row["id"] for row in await world.sql("SELECT name, id FROM scheduler.job_definitions")}
    new = [
        NewPlaced(
            run=NewRun(
                definition_id=jobs[request["job"]],
                version=1,
                scope="account" if request["scope_id"] else "system",
                key=f"k{n}" if n < keys else "",
                **{name: value for name, value in request.items() if name != "executor"},
            ),
            token=n + 1,
            incarnation=world.incarnations[request["executor"] - 1],
        )
        for n, request in enumerate(requests)
    ]
    prevents = {
        "nothing": False,
        "a definition": any(request["job"] == "other" for request in requests),
        "a key": keys > 0,
        "an executor": any(request["executor"] == 2 for request in requests),
        "a heartbeat": any(request["executor"] == 2 for request in requests),
    }
    async with fenced_tx(world.administrator, world.term) as t, undone(t):
        await t.execute("UPDATE scheduler.executors SET last_heartbeat_at = now()")
        await t.execute(CHANGES[change])
        before = await rows_of(t, STARTS)
        short, long = await both_ways(t, new)
        assert await rows_of(t, STARTS) == before
    assert short == (None if prevents[change] else long)
