"""ExplainRun: why a run waits, was skipped or was sent. What it names is what the leader does next."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import StepResult
from toban_proto.v1 import coordinator_pb2 as pb


@pytest.fixture
async def why(world: Any) -> Any:
    """Explains a run while a leader is there."""
    await world.sql(
        "UPDATE scheduler.leader SET settled_system_id = scheduler.current_system_id(), settled_timeline = scheduler.current_timeline()"
    )

    async def explain(run: int) -> pb.RunExplanation:
        # However slow this machine is: all but those that a test made silent have just sent a heartbeat.
        soon = "now() + interval '1 minute'"
        await world.sql(f"UPDATE scheduler.leader_beat SET beaten_at = {soon}")
        await world.sql(
            f"UPDATE scheduler.executors SET last_heartbeat_at = {soon} WHERE last_heartbeat_at > now() - interval '30 minutes'"
        )
        found: pb.RunExplanation = await world.reader.ExplainRun(pb.GetRunRequest(id=run), None)
        shown = (await world.reader.GetRun(pb.GetRunRequest(id=run), None)).waiting
        # One mechanism: the sentence of the run's page is the first reason.
        assert shown in ("", found.reasons[0])
        return found

    return explain


def blocking(found: pb.RunExplanation) -> list[str]:
    return [check.name for check in found.checks if check.blocks]


async def test_a_limit_with_the_runs_that_hold_it(world: Any, make: Any, limited: Any, why: Any) -> None:
    await world.executor(slots=9)
    await world.apply(make.job(concurrency={"limit": 2}))
    runs = await world.start(count=4)
    await limited.turns()
    found = await why(runs[-1])
    assert (found.run_id, found.job, found.state, blocking(found)) == (runs[-1], "hello", "DEFERRED", ["limit"])
    assert found.reasons[0] == "limit job:hello is reached (2 of 2 are taken)"
    [limit] = found.limits
    assert (limit.name, limit.effective, limit.held, limit.blocks) == ("job:hello", 2, 2, True)
    assert [holder.run_id for holder in limit.holders] == runs[:2] and limit.holders[0].executor == "e1"
    assert (found.turn.earlier, found.turn.more_urgent) == (1, 0)
    await limited.end(runs[0])
    assert (await why(runs[-1])).reasons[0] == "limit job:hello has room: it is resumed when its turn comes"


async def test_a_new_run_comes_behind_those_that_wait(world: Any, make: Any, limited: Any, why: Any) -> None:
    """It is PENDING still, and the leader defers it in its next turn."""
    await world.executor(slots=9)
    await world.apply(make.job(concurrency={"limit": 1}))
    runs = await world.start(count=2)
    await limited.turns()
    await limited.end(runs[0])
    [new] = await world.start()
    found = await why(new)
    assert (
        found.state == "PENDING" and found.reasons[0] == "other runs wait for limit job:hello, and it comes behind them"
    )
    await limited.turn("assign")
    assert await world.state(new) == "DEFERRED"


async def test_a_pool_a_breaker_and_a_run_that_ignores_limits(world: Any, make: Any, limited: Any, why: Any) -> None:
    await world.executor(slots=9)
    await world.sql("INSERT INTO scheduler.limits (name, value) VALUES ('pool:licences', 3)")
    await world.apply(make.job(concurrency={"pools": {"licences": 2}}))
    _, waiting = await world.start(count=2)
    await limited.turns()
    found = await why(waiting)
    assert found.limits[0].weight == 2 and "pool:licences has no room for a weight of 2" in found.reasons[0]
    await world.sql(
        "INSERT INTO scheduler.breakers (name, state, by_hand, reason, updated_by) VALUES ('pool:licences', 'open', true, 'down', 'ada')"
    )
    assert (await why(waiting)).reasons[0] == "limit pool:licences: its breaker is open: down"
    [free] = await world.start()
    await world.sql("INSERT INTO scheduler.limit_overrides (run_id) VALUES (%(r)s)", r=free)
    found = await why(free)
    assert blocking(found) == [] and found.limits[0].message == "it ignores limit pool:licences (--ignore-limits)"


async def test_each_executor_tells_why_it_does_not_fit(world: Any, make: Any, limited: Any, why: Any) -> None:
    await world.executor(1, slots=1, labels={"gpu": "a100"})
    await world.executor(2, labels={"gpu": "h100"})
    await world.executor(3)
    await world.apply(make.job(selector={"labels": {"gpu": "a100"}}))
    [first] = await world.start()
    await limited.turn("assign")
    await world.executor(4, labels={"gpu": "a100"})
    [second] = await world.start()
    await world.sql("UPDATE scheduler.executors SET last_heartbeat_at = now() - interval '1 hour' WHERE node_id = 'e4'")
    found = await why(second)
    assert blocking(found) == ["executor"]
    assert [(one.executor, one.fits, one.message) for one in found.executors] == [
        ("e1", False, "all its slots are busy (1 of 1)"),
        ("e2", False, "lacks gpu=a100 (has gpu=h100)"),
        ("e3", False, "lacks gpu=a100"),
        ("e4", False, "silent"),
    ]
    sent = await why(first)
    assert sent.reasons[0].startswith("it is ASSIGNED on e1") and not sent.checks and not sent.HasField("turn")


async def test_an_isolated_run_tells_which_executors_only_their_class_rules_out(
    world: Any, make: Any, why: Any
) -> None:
    await world.executor(1, labels={"isolation": "isolated"})
    await world.executor(2)
    await world.sql("UPDATE scheduler.executors SET isolation = 'isolated', state = 'draining' WHERE node_id = 'e2'")
    await world.apply(make.job(isolation="isolated"))
    [run] = await world.start()
    assert (await why(run)).reasons[0] == "no executor of class isolated takes work (1 draining)"
    await world.sql(
        "UPDATE scheduler.executors SET isolation = 'shared', state = 'off', off_at = now() WHERE node_id = 'e2'"
    )
    [number] = [
        row["worker_id"] for row in await world.sql("SELECT worker_id FROM scheduler.executors WHERE node_id = 'e1'")
    ]
    found = await why(run)
    assert found.reasons[0].startswith(
        f"no executor of class isolated fits the job (executor {number} fits otherwise, but is shared)"
    )
    assert [one.message for one in found.executors] == ["is of class shared, and the job needs isolation: isolated"]


async def test_a_cancel_that_waits_for_a_step_that_is_not_cancelable(world: Any, make: Any, why: Any) -> None:
    await world.executor()
    steps = [{"id": "load", "argv": ["true"]}, {"id": "swap", "argv": ["true"], "cancelable": False}]
    await world.apply(make.job(steps=steps))
    [run] = await world.start()
    await world.turn("assign")
    await world.cancel(run)
    assert (await why(run)).reasons[0].startswith("it is CANCEL_REQUESTED")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    started = [StepResult(index=index, started_at=at).to_json() for index in range(2)]
    await world.sql("UPDATE scheduler.runs_live SET steps = %(steps)s::jsonb", steps=json.dumps(started))
    first, second, *_ = (await why(run)).reasons
    assert first.startswith(
        "its cancel waits for step 'swap', which is not cancelable: the run ends when the step does"
    )
    assert f"`toban run kill {run}`" in first and second.startswith("it is CANCEL_REQUESTED")
    await world.cancel(run, "kill")
    assert (await why(run)).reasons[0].startswith("it is CANCEL_REQUESTED")


async def test_what_the_leader_will_skip_and_what_it_has_skipped(world: Any, make: Any, limited: Any, why: Any) -> None:
    await world.executor(slots=9)
    await world.apply(make.job(skip_late_after_seconds=60))
    [run] = await world.start()
    assert "SKIPPED (late) after" in next(c.message for c in (await why(run)).checks if c.name == "late")
    await world.sql("UPDATE scheduler.runs_live SET scheduled_for = now() - interval '1 hour'")
    found = await why(run)
    assert blocking(found) == ["late"] and found.reasons[0].startswith("the leader skips it in its next turn (late): ")
    await limited.turn("assign")
    skipped = await why(run)
    assert skipped.state == "SKIPPED" and skipped.reasons[0].startswith("it was skipped: late: ")
    assert "skip_late_after_seconds" in skipped.reasons[1]


async def test_a_policy_is_foretold(world: Any, make: Any, limited: Any, why: Any) -> None:
    await world.executor(slots=9)
    await world.apply(make.job(concurrency={"policy": "forbid", "dedupe_keys": ["scope_id"]}))
    [first], [second] = await world.start(), await world.start()
    found = await why(second)
    assert blocking(found) == ["policy"] and f"run {first} with the same dedupe keys is still live" in found.reasons[0]
    await limited.turns()
    assert (await why(second)).reasons[0].startswith("it was skipped: overlap: ")


async def test_scopes_take_turns_and_what_is_more_urgent_is_counted(
    world: Any, make: Any, limited: Any, why: Any
) -> None:
    await world.apply(make.job(), make.job("urgent", priority=5))
    await world.start(count=3, scope="account", scope_id="17")
    [mine] = await world.start(scope="account", scope_id="4")
    await world.start("urgent", count=2)
    await world.sql("INSERT INTO scheduler.limits (name, value) VALUES ('scope:account/17', 3)")
    found = await why(mine)
    assert found.reasons[0] == "no executor is registered; start one"
    assert (found.turn.more_urgent, found.turn.earlier) == (2, 0)
    shown = {one.scope_id: (one.waiting, one.weight) for one in found.turn.scopes}
    assert shown == {"17": (3, 3), "4": (1, 1)}


async def test_the_time_and_the_clocks(world: Any, make: Any, limited: Any, why: Any) -> None:
    await world.apply(make.job())
    [run] = await world.start(scheduled_for=world.now() + timedelta(hours=1))
    found = await why(run)
    assert blocking(found)[0] == "due" and found.reasons[0].startswith("it is not due before ")
    await world.sql(
        "INSERT INTO scheduler.coordinators (incarnation, worker_id, node_id, address, pid, version, role, clock_skew_seconds)"
        " VALUES (gen_random_uuid(), 1, 'c1', 'h:1', 1, 'v', 'leader', 3.5)"
    )
    await world.sql("UPDATE scheduler.leader SET worker_id = 1")
    clock = next(check for check in (await why(run)).checks if check.name == "clock")
    assert "+3.5 s off" in clock.message and not clock.blocks


async def test_a_run_that_is_not_there(why: Any) -> None:
    with pytest.raises(TobanError) as caught:
        await why(4711)
    assert caught.value.code is ErrorCode.RUN_NOT_FOUND
