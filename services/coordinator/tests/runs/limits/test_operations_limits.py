"""Limits as operators see and change them, and what runs say that wait for one."""

from __future__ import annotations

from typing import Any

import pytest

from toban_coordinator.app.limits.operations_limits import LimitOperations
from toban_coordinator.server.limits_to_proto import limit_details_to_pb, limit_to_pb
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb


@pytest.fixture
def desk(world: Any) -> LimitOperations:
    return LimitOperations(pool=world.pool)


async def put(desk: LimitOperations, name: str, value: int | None, reason: str = "") -> pb.Limit:
    return limit_to_pb(await desk.set(name, value, reason=reason, actor="admin-cli"))


async def test_a_limit_that_is_set_holds_at_once_and_is_in_the_audit(
    world: Any, make: Any, limited: Any, desk: LimitOperations
) -> None:
    await world.executor(slots=9)
    await world.apply(make.job())
    await limited.turns()
    set_ = await put(desk, "job:hello", 1, "slow")
    assert (set_.limit, set_.source, set_.updated_by, set_.reason) == (1, "operator", "admin-cli", "slow")
    first, second = await world.start(count=2)
    await limited.turns(2)
    [listed] = [limit_to_pb(state) for state in await desk.list()]
    assert (listed.name, listed.limit, listed.held, listed.waiting) == ("job:hello", 1, 1, 1)
    details = limit_details_to_pb(await desk.get("job:hello"))
    assert [run.run_id for run in details.holders] == [first] and [run.run_id for run in details.waiting] == [second]
    assert details.holders[0].since.seconds and details.waiting[0].since.seconds
    assert (await put(desk, "job:hello", None)).limit == 0
    await limited.turns(2)
    assert await world.state(second) == "ASSIGNED"
    rows = await world.sql("SELECT action, target, before, after FROM scheduler.admin_action_log ORDER BY id")
    found = [(r["action"], r["before"], r["after"]) for r in rows if r["target"] == "limit job:hello"]
    assert found == [("set_limit", None, {"value": 1}), ("reset_limit", {"value": 1}, None)]


@pytest.mark.seed(205)
async def test_limits_of_definitions_are_listed(world: Any, make: Any, desk: LimitOperations) -> None:
    await world.apply(make.job(concurrency={"limit": 3, "start_rate": {"runs": 2}}))
    listed = [limit_to_pb(state) for state in await desk.list()]
    assert [(one.name, one.limit, one.source) for one in listed] == [
        ("job:hello", 3, "definition"),
        ("rate:hello", 2, "definition"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "code", "words"),
    [
        ("job:hello", -2, ErrorCode.INVALID_ARGUMENT, "-1 … 1000000"),
        ("job:helo", 1, ErrorCode.JOB_NOT_FOUND, "did you mean 'hello'"),
        ("pool:a", 0, ErrorCode.INVALID_ARGUMENT, "not 0"),
        ("pool:A B", 1, ErrorCode.INVALID_ARGUMENT, "name of a pool"),
        ("pool:used", 1, ErrorCode.INVALID_ARGUMENT, "takes 2 of it"),
        ("pool:used", None, ErrorCode.RESOURCE_INVALID_STATE, "take it out"),
        ("scope:group/1", 1, ErrorCode.INVALID_ARGUMENT, "not a scope"),
        ("scope:account/1", 0, ErrorCode.INVALID_ARGUMENT, "1 … 1000000"),
        ("rate:hello", 1, ErrorCode.INVALID_ARGUMENT, "use job:NAME"),
        ("", 1, ErrorCode.INVALID_ARGUMENT, "use job:NAME"),
    ],
)
async def test_a_bad_limit_is_refused_with_a_remedy(
    world: Any, make: Any, desk: LimitOperations, name: str, value: int | None, code: ErrorCode, words: str
) -> None:
    await put(desk, "pool:used", 5)
    await world.apply(make.job(), make.job("user", concurrency={"pools": {"used": 2}}))
    with pytest.raises(TobanError) as refused:
        await put(desk, name, value)
    assert refused.value.code is code and words in refused.value.message


@pytest.mark.seed(201)
async def test_a_limit_that_is_not_there_is_not_found(world: Any, make: Any, desk: LimitOperations) -> None:
    await world.apply(make.job())
    with pytest.raises(TobanError, match="no limit 'pool:x'") as refused:
        await desk.get("pool:x")
    assert refused.value.code is ErrorCode.NOT_FOUND


async def test_a_job_cannot_take_of_a_pool_that_is_missing_or_too_small(
    world: Any, make: Any, desk: LimitOperations
) -> None:
    with pytest.raises(
        TobanError, match=r"spec.concurrency.pools.licences: there is no pool 'licences'; make it first"
    ):
        await world.apply(make.job(concurrency={"pools": {"licences": 1}}))
    await put(desk, "pool:licences", 2)
    with pytest.raises(TobanError, match=r"did you mean 'licences'"):
        await world.apply(make.job(concurrency={"pools": {"licence": 1}}), dry_run=True)
    with pytest.raises(TobanError, match=r"takes 3 of pool 'licences', whose size is 2; use at most 2"):
        await world.apply(make.job(concurrency={"pools": {"licences": 3}}))
    await world.apply(make.job(concurrency={"pools": {"licences": 2}}))


async def test_a_deferred_run_says_what_it_waits_for(
    world: Any, make: Any, limited: Any, desk: LimitOperations
) -> None:
    async def why(run: int) -> str:
        found = await world.reader.GetRun(pb.GetRunRequest(id=run), None)
        assert found.state == "DEFERRED" and found.deferred_on
        return str(found.waiting)

    await world.sql("UPDATE scheduler.leader_beat SET beaten_at = now() + interval '1 hour'")
    await world.executor(slots=9)
    await put(desk, "pool:p", 3)
    await world.apply(
        make.job(concurrency={"limit": 1}),
        make.job("pooled", concurrency={"pools": {"p": 2}}),
        make.job("queued", concurrency={"policy": "queue"}),
        make.job("rated", concurrency={"start_rate": {"runs": 1, "per_seconds": 60}}),
        make.job("stopped", concurrency={"limit": -1}),
    )
    runs = {name: (await world.start(name, count=2))[1] for name in ("hello", "pooled", "queued", "rated", "stopped")}
    await limited.turns(3)
    assert await why(runs["hello"]) == "limit job:hello is reached (1 of 1 are taken)"
    assert await why(runs["pooled"]) == "limit pool:p has no room for a weight of 2 (2 of 3 are taken)"
    assert await why(runs["queued"]) == "another run of its group job has not ended"
    assert await why(runs["rated"]) == "job rated starts at most 1 runs in 60 s (1 of 1 are taken)"
    assert (
        await why(runs["stopped"]) == "limit job:stopped is -1: nothing starts; `toban limit get job:stopped` says why"
    )
