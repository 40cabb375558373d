"""Many runs by a filter: canceled or repeated, counted, skipped with a reason, audited once."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from toban_coordinator.app.cluster.audit_log import spans
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.runs import change_runs
from toban_coordinator.app.runs.cancel import CancelRun
from toban_coordinator.app.runs.change_runs import ChangeRequest, ChangeRuns
from toban_coordinator.app.runs.rerun import RunRepeats
from toban_coordinator.app.runs.run_queries import RunQuery
from toban_coordinator.app.runs.start_runs import StartRuns
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.clock import SystemClock


def service(world: Any) -> ChangeRuns:
    start = StartRuns(
        pool=world.pool, definitions=world.definitions, payloads=PayloadValidator(), fast_path=world.fast_path
    )
    cancel = CancelRun(pool=world.pool, definitions=world.definitions)
    repeats = RunRepeats(pool=world.pool, start=start)
    return ChangeRuns(pool=world.pool, cancel_run=cancel, repeats=repeats, clock=SystemClock())


def which(query: RunQuery, **fields: Any) -> ChangeRequest:
    return ChangeRequest(query=query, actor="user ada", **fields)


async def audited(world: Any) -> list[dict[str, Any]]:
    return await world.sql(
        "SELECT action, target, reason, before, after FROM scheduler.admin_action_log WHERE action LIKE 'runs.%%' ORDER BY id"
    )


async def failed(world: Any, make: Any, count: int) -> list[int]:
    await world.executor(slots=count)
    await world.apply(make.job())
    runs = await world.start(count=count)
    await world.turn("assign")
    for run in runs:
        await world.report(world.key(run), make.outcome("FAILED", exit_code=1))
    return runs


async def test_cancel_by_filter(world: Any, make: Any) -> None:
    await world.executor(slots=1)
    await world.apply(make.job(), make.job("other"))
    runs = await world.start(count=4)
    [other] = await world.start("other")
    await world.turn("assign")
    wanted = which(RunQuery(job="hello"), reason="wrong input")
    counted = await service(world).cancel(which(RunQuery(job="hello"), dry_run=True))
    assert (counted.matched, counted.changed) == (4, 0)
    assert await audited(world) == []
    done = await service(world).cancel(wanted)
    assert (done.matched, done.changed, done.skipped, done.next_cursor) == (4, 4, {}, "")
    states = [await world.state(run) for run in runs]
    assert sorted(set(states)) == ["CANCELED", "CANCEL_REQUESTED"]
    assert await world.state(other) in ("PENDING", "ASSIGNED")
    again = await service(world).cancel(wanted)
    assert again.changed == 0 and again.skipped[ErrorCode.RESOURCE_INVALID_STATE].count == again.matched
    [action] = await audited(world)
    assert (action["action"], action["target"], action["reason"]) == ("runs.cancel", "4 runs", "wrong input")
    assert action["after"] == {"matched": 4, "changed": 4, "skipped": {}, "runs": f"{runs[0]}-{runs[-1]}"}
    assert await world.sql("SELECT 1 FROM scheduler.admin_action_log WHERE action = 'run.cancel'") == [], (
        "one row for all"
    )
    assert action["before"]["filter"]["job"] == "hello"


async def test_what_cannot_be_canceled_is_skipped_with_its_reason(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(cancel={"supported": False}))
    [run] = await world.start()
    await world.turn("assign")
    [waiting] = await world.start()
    done = await service(world).cancel(which(RunQuery(job="hello")))
    assert (done.matched, done.changed) == (2, 1)
    skipped = done.skipped[ErrorCode.CANCEL_UNSUPPORTED]
    assert skipped.runs == [run] and "toban run kill" in skipped.message
    assert await world.state(waiting) == "CANCELED"


async def test_rerun_by_filter_repeats_each_run_once(world: Any, make: Any) -> None:
    runs = await failed(world, make, 3)
    done = await service(world).rerun(which(RunQuery(job="hello")), operation="op-1")
    assert (done.matched, done.changed) == (3, 3)
    assert [(await world.run(run))["rerun_of"] for run in done.made] == sorted(runs, reverse=True)
    [action] = await audited(world)
    assert (action["after"]["runs"], action["after"]["made"]) == (spans(runs), spans(done.made))
    assert await world.sql("SELECT 1 FROM scheduler.admin_action_log WHERE action = 'run.rerun'") == []
    same = await service(world).rerun(which(RunQuery(job="hello")), operation="op-1")
    assert sorted(same.made) == sorted(done.made)
    assert (await world.sql("SELECT count(*) AS n FROM scheduler.runs_live"))[0]["n"] == 3
    other = await service(world).rerun(which(RunQuery(job="hello")), operation="op-2")
    assert not set(other.made) & set(done.made)


async def test_a_part_ends_with_a_cursor_and_new_runs_are_never_met(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_runs, "PAGE", 2)
    monkeypatch.setattr(change_runs, "PART", 2)
    await failed(world, make, 5)
    cursor, parts = "", []
    every = RunQuery(job="hello", states=("FAILED", "PENDING", "SUCCEEDED"))
    while True:
        done = await service(world).rerun(which(every, cursor=cursor), operation="op")
        parts.append((done.matched, done.changed))
        cursor = done.next_cursor
        if not cursor:
            break
    assert parts == [(2, 2), (2, 2), (1, 1)]
    assert len(await audited(world)) == 3


async def test_rights_are_asked_for_each_run(world: Any, make: Any) -> None:
    hidden, denied, mine = await failed(world, make, 3)

    async def rights(runs: Sequence[int]) -> Mapping[int, bool]:
        return {run: run == mine for run in runs if run != hidden}

    done = await service(world).rerun(which(RunQuery(job="hello"), rights=rights), operation="op")
    assert (done.matched, done.changed) == (2, 1)
    assert done.skipped[ErrorCode.PERMISSION_DENIED].runs == [denied]
    assert (await world.run(done.made[0]))["rerun_of"] == mine


async def test_bad_requests(world: Any, make: Any) -> None:
    await world.apply(make.job())
    for query, operation in ((RunQuery(states=("GONE",)), "op"), (RunQuery(job="hello"), ""), (RunQuery(), "x" * 101)):
        with pytest.raises(TobanError) as caught:
            await service(world).rerun(which(query), operation=operation)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(TobanError, match="no executor"):
        await service(world).cancel(which(RunQuery(executor="nowhere")))
