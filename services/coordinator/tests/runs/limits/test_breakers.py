"""Breakers that failures and operators open, health signals, shares of tenants, and runs that ignore limits."""

from __future__ import annotations

from typing import Any

import pytest

from toban_coordinator.app.limits.breakers import BreakerOperations
from toban_coordinator.app.limits.operations_limits import LimitOperations
from toban_coordinator.server.limits_to_proto import limit_to_pb
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb

BREAKER = {"failure_ratio": 0.5, "min_runs": 4, "window_seconds": 3600, "open_seconds": 600}
EARLIER = "UPDATE scheduler.breakers SET since = since - interval '700 seconds'"


@pytest.fixture
def desk(world: Any) -> BreakerOperations:
    return BreakerOperations(pool=world.pool)


@pytest.fixture
def limits(world: Any) -> LimitOperations:
    return LimitOperations(pool=world.pool)


async def shown(limits: LimitOperations, name: str = "job:hello") -> pb.Limit:
    return limit_to_pb(await limits.state(name))


async def run_all(world: Any, limited: Any, count: int, kind: str) -> None:
    await world.start(count=count)
    await limited.turns()
    for run in await limited.live():
        await limited.end(run, kind)


async def opened(world: Any, make: Any, limited: Any, **concurrency: Any) -> None:
    """A job whose failures have just opened its breaker."""
    await world.executor(slots=20)
    await world.apply(make.job(concurrency={"breaker": BREAKER, **concurrency}))
    await run_all(world, limited, 4, "FAILED")
    await limited.turns()


@pytest.mark.seed(194)
async def test_failures_open_it_one_run_probes_and_its_success_closes_it(
    world: Any, make: Any, limited: Any, limits: LimitOperations
) -> None:
    await opened(world, make, limited)
    found = await shown(limits)
    assert (found.breaker, found.breaker_by, found.effective) == ("open", "leader", -1)
    assert found.breaker_reason == "4 of 4 runs failed within 3600 s"
    await world.start(count=3)
    await limited.turns(2)
    assert await limited.live() == [] and (await limited.states())["DEFERRED"] == 3
    await world.sql(EARLIER)
    await limited.turns(3)
    [probe] = await limited.live()
    assert (await shown(limits)).breaker == "half_open"
    await limited.end(probe)
    await limited.turns(3)
    assert (await shown(limits)).breaker == "closed" and len(await limited.live()) == 2


async def test_a_probe_that_fails_opens_it_again(world: Any, make: Any, limited: Any, limits: LimitOperations) -> None:
    await opened(world, make, limited, limit=5)
    await world.start(count=3)
    await world.sql(EARLIER)
    await limited.turns(3)
    [probe] = await limited.live()
    await limited.end(probe, "FAILED")
    await limited.turns(3)
    found = await shown(limits)
    assert (found.breaker, found.breaker_reason) == ("open", "the run that probed failed")
    assert await limited.live() == []


async def test_runs_of_the_fast_path_and_of_slots_find_it_open(world: Any, make: Any, limited: Any) -> None:
    await opened(world, make, limited)
    await world.apply(make.schedule())
    await world.sql("UPDATE scheduler.schedules SET next_run_at = now()")
    await world.start_again()
    await world.turn("fire")
    await limited.turns(2)
    assert await limited.live() == []


async def test_a_definition_without_a_breaker_closes_it(
    world: Any, make: Any, limited: Any, limits: LimitOperations
) -> None:
    await opened(world, make, limited)
    await world.apply(make.job())
    await world.start()
    await limited.turns(3)
    assert (await shown(limits)).breaker == "closed" and len(await limited.live()) == 1


async def test_an_operator_opens_and_closes_it_and_both_are_in_the_audit(
    world: Any, make: Any, limited: Any, desk: BreakerOperations, limits: LimitOperations
) -> None:
    await world.sql("UPDATE scheduler.leader_beat SET beaten_at = now() + interval '1 hour'")
    await world.executor(slots=9)
    await world.apply(make.job(concurrency={"limit": 2}))
    await desk.open("job:hello", reason="the warehouse is down", actor="ada")
    [run] = await world.start()
    await limited.turns(2)
    found = await shown(limits)
    assert (found.limit, found.effective, found.breaker_by) == (2, -1, "ada")
    waits = (await world.reader.GetRun(pb.GetRunRequest(id=run), None)).waiting
    assert await world.state(run) == "DEFERRED" and "its breaker is open: the warehouse is down" in waits
    # Time does not close what an operator opened.
    await world.sql(EARLIER)
    await limited.turns(2)
    assert await world.state(run) == "DEFERRED"
    await desk.close("job:hello", reason="", actor="ada")
    await limited.turns(2)
    assert await world.state(run) == "ASSIGNED"
    rows = await world.sql("SELECT action, before, after, reason FROM scheduler.admin_action_log ORDER BY id")
    assert [(r["action"], r["after"], r["reason"]) for r in rows if "breaker" in r["action"]] == [
        ("open_breaker", {"breaker": "open"}, "the warehouse is down"),
        ("close_breaker", {"breaker": "closed"}, ""),
    ]


async def test_resetting_a_limit_takes_its_breaker_and_its_signal_away(
    world: Any, make: Any, limited: Any, desk: BreakerOperations, limits: LimitOperations
) -> None:
    await world.apply(make.job(concurrency={"limit": 10}))
    await desk.signal("job:hello", "hard", ttl_seconds=600, reason="", actor="db")
    await desk.open("job:hello", reason="why", actor="ada")
    await limits.set("job:hello", None, reason="", actor="ada")
    found = await shown(limits)
    assert (found.effective, found.breaker, found.signal) == (10, "", "")


async def test_a_signal_leaves_a_part_of_the_limit_and_ok_gives_it_back_bit_by_bit(
    world: Any, make: Any, limited: Any, desk: BreakerOperations, limits: LimitOperations
) -> None:
    await world.executor(slots=20)
    await world.apply(make.job(concurrency={"limit": 10}))
    await desk.signal("job:hello", "hard", ttl_seconds=600, reason="slow", actor="db")
    await world.start(count=12)
    await limited.turns(2)
    found = await shown(limits)
    assert (len(await limited.live()), found.effective, found.signal, found.signal_reason) == (5, 5, "hard", "slow")
    await desk.signal("job:hello", "ok", ttl_seconds=1, reason="", actor="db")
    await world.sql(
        "UPDATE scheduler.limit_signals SET updated_at = now() - interval '125 s', holds_until = now() - interval '125 s'"
    )
    await limited.turns(3)
    assert (await shown(limits)).effective == len(await limited.live()) == 7
    await world.sql(
        "UPDATE scheduler.limit_signals SET holds_until = now() - interval '1 h', updated_at = now() - interval '1 h'"
    )
    await limited.turns(3)
    assert len(await limited.live()) == 10 and (await shown(limits)).signal == ""


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("scope:account/1", ErrorCode.INVALID_ARGUMENT, "has no breaker"),
        ("job:helo", ErrorCode.JOB_NOT_FOUND, "did you mean 'hello'"),
        ("pool:none", ErrorCode.NOT_FOUND, "there is no limit"),
        ("nothing", ErrorCode.INVALID_ARGUMENT, "use job:NAME"),
        ("job:", ErrorCode.INVALID_ARGUMENT, "use job:NAME"),
    ],
)
async def test_a_breaker_of_nothing_is_refused(
    world: Any, make: Any, desk: BreakerOperations, name: str, code: ErrorCode, words: str
) -> None:
    await world.apply(make.job())
    with pytest.raises(TobanError) as refused:
        await desk.open(name, reason="why", actor="ada")
    assert refused.value.code is code and words in refused.value.message


async def test_bad_requests_say_what_to_do(world: Any, make: Any, desk: BreakerOperations) -> None:
    await world.apply(make.job())
    wrong = [
        (desk.open("job:hello", reason="  ", actor="a"), ErrorCode.INVALID_ARGUMENT, "--reason"),
        (desk.close("job:hello", reason="", actor="a"), ErrorCode.RESOURCE_INVALID_STATE, "is not open"),
        (signal(desk, "job:hello", "soft"), ErrorCode.RESOURCE_INVALID_STATE, "toban limit set job:hello N"),
        (signal(desk, "job:hello", "bad"), ErrorCode.INVALID_ARGUMENT, "use ok, soft or hard"),
        (signal(desk, "job:hello", "soft", ttl=0), ErrorCode.INVALID_ARGUMENT, "1 … 86400"),
    ]
    for call, code, words in wrong:
        with pytest.raises(TobanError) as refused:
            await call
        assert refused.value.code is code and words in refused.value.message


def signal(desk: BreakerOperations, name: str, level: str, ttl: int = 60) -> Any:
    return desk.signal(name, level, ttl_seconds=ttl, reason="", actor="a")


async def test_no_waiting_tenant_holds_more_than_its_share(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=20)
    await world.apply(make.job(concurrency={"limit": 6}))
    await world.start(count=20, scope="account", scope_id="a")
    await limited.turns(2)
    assert len(await limited.live(scope_id="a")) == 6
    for tenant in "bc":
        await world.start(count=5, scope="account", scope_id=tenant)
    await limited.turns()
    for run in await limited.live():
        await limited.end(run)
    await limited.turns(3)
    assert [len(await limited.live(scope_id=tenant)) for tenant in "abc"] == [2, 2, 2]
    # What one tenant gives back goes to those that hold less than their share, however long the other's queue is.
    for run in (await limited.live(scope_id="b"))[:1]:
        await limited.end(run)
    await limited.turns(3)
    assert [len(await limited.live(scope_id=tenant)) for tenant in "abc"] == [2, 2, 2]


async def test_a_run_that_ignores_limits_starts_counts_and_is_in_the_audit(
    world: Any, make: Any, limited: Any, desk: BreakerOperations
) -> None:
    await world.executor(slots=9)
    await world.apply(make.job(concurrency={"limit": 1}))
    [first] = await world.start()
    await limited.turns()
    [second] = await world.start()
    await limited.turns()
    await desk.open("job:hello", reason="why", actor="ada")
    [now] = await world.start_again(ignore_limits=True)
    await limited.turns(2)
    assert await limited.live() == [first, now] and await world.state(second) == "DEFERRED"
    assert await limited.held("job:hello") == 2
    rows = await world.sql("SELECT actor, target FROM scheduler.admin_action_log WHERE action = 'ignore_limits'")
    assert [(row["actor"], row["target"]) for row in rows] == [("admin-cli", f"run {now}")]
    for run in (first, now):
        await limited.end(run)
    world.loops["limits"]._work.__self__._clear_at = 0.0
    await limited.turn("limits")
    assert await world.sql("SELECT * FROM scheduler.limit_overrides") == []
