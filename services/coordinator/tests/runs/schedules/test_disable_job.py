"""A job that a person disabled starts nothing, whatever is applied meanwhile, and every place says by whom and why."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.app.definitions.delete_job import DeleteJob, DeleteRequest
from toban_coordinator.app.definitions.disable_job import DisableJob
from toban_coordinator.app.runs.cancel import CancelRun
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb

BY = "user ada"
WHY = " by user ada: the source moves"


async def disable(world: Any, name: str = "hello", reason: str = "the source moves") -> dict[str, Any]:
    return dict(await DisableJob(pool=world.pool).disable(name, reason=reason, actor=BY))


async def enable(world: Any, name: str = "hello", **given: Any) -> dict[str, Any]:
    return dict(await DisableJob(pool=world.pool).enable(name, reason="it is back", actor=BY, **given))


async def test_it_starts_nothing_on_demand(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job())
    # The fast path has the definition in memory by then.
    await world.start()
    row = await disable(world)
    assert (row["enabled"], row["disabled_by"], row["disabled_reason"]) == (False, BY, "the source moves")
    with pytest.raises(TobanError) as caught:
        await world.start()
    assert caught.value.code is ErrorCode.JOB_DISABLED
    assert (
        caught.value.message
        == f"job 'hello' is disabled{WHY}; press “Enable” on the page of the job, or enter `toban job enable hello`"
    )
    row = await enable(world)
    assert (row["enabled"], row["disabled_at"], row["disabled_by"]) == (True, None, "")
    await world.start()


async def test_its_slots_are_skipped_and_the_ledger_says_why(world: Any, make: Any, desk: Any) -> None:
    await world.executor()
    await world.apply(make.job(), make.schedule())
    await desk.passed(0)
    await world.turn("fire", "assign")
    await disable(world)
    ahead = await world.sql("SELECT id FROM scheduler.runs_live WHERE slot > now() AND dispatched_at IS NULL")
    assert ahead == [], "runs of slots to come are withdrawn"
    [gone, *_] = await world.sql("SELECT id FROM scheduler.runs_history WHERE reason = 'withdrawn'")
    why = await world.reader.ExplainRun(pb.GetRunRequest(id=gone["id"]), None)
    assert f"its schedule was disabled with its job{WHY} before its time" in why.reasons[0]
    await world.turn("fire")
    [told] = await world.sql("SELECT DISTINCT message FROM scheduler.fire_ledger WHERE outcome = 'disabled'")
    assert told["message"] == f"job hello is disabled{WHY}"
    slots = await world.reader.NextSlots(pb.NextSlotsRequest(name="often"), None)
    assert slots.note == f"job hello is disabled{WHY}: its slots pass without runs"
    listed = await world.reader.GetJob(pb.GetJobRequest(name="hello"), None)
    assert (listed.enabled, listed.disabled_by, listed.disabled_reason) == (False, BY, "the source moves")
    assert not listed.schedules[0].HasField("next_run_at"), "what passes without a run is no next run"
    await enable(world)
    assert (await world.reader.GetJob(pb.GetJobRequest(name="hello"), None)).schedules[0].HasField("next_run_at")


async def test_slots_after_it_is_enabled_get_their_runs(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await disable(world)
    first = await desk.passed(20)
    await world.turn("fire")
    assert [outcome for outcome, _ in await desk.ledger()] == ["disabled"]
    await enable(world)
    await world.turn("fire")
    rows = await world.sql("SELECT outcome, first_slot, slots FROM scheduler.fire_ledger ORDER BY first_slot")
    assert rows[0]["outcome"] == "disabled" and {row["outcome"] for row in rows[1:]} == {"fired"}
    assert rows[1]["first_slot"] == first + rows[0]["slots"] * timedelta(seconds=10), "no slot is lost in between"


async def test_what_is_applied_does_not_enable_it(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await disable(world)
    before = (await desk.get()).version
    assert await world.apply(make.job()) == [("hello", "unchanged", 1)]
    assert await world.apply(make.job(priority=3)) == [("hello", "updated", 2)]
    assert await world.apply(make.job(enabled=False)) == [("hello", "updated", 3)]
    assert await world.apply(make.job()) == [("hello", "updated", 4)]
    assert (await desk.get()).version == before, "its schedules are not settled again"
    with pytest.raises(TobanError, match="disabled by user ada"):
        await world.start()
    job = await world.reader.GetJob(pb.GetJobRequest(name="hello"), None)
    assert (job.version, job.enabled, job.disabled_by) == (4, False, BY)
    await enable(world)
    await world.start()


async def test_a_manifest_that_disables_it_is_not_overruled(world: Any, make: Any) -> None:
    await world.apply(make.job(enabled=False))
    with pytest.raises(TobanError, match="its manifest has `enabled: false`") as caught:
        await enable(world)
    assert caught.value.code is ErrorCode.RESOURCE_INVALID_STATE
    await disable(world)
    assert (await enable(world))["enabled"] is False
    with pytest.raises(TobanError, match="apply it with `enabled: true`"):
        await world.start()


async def test_twice_is_refused(world: Any, make: Any) -> None:
    await world.apply(make.job())
    with pytest.raises(TobanError, match="not disabled by a person"):
        await enable(world)
    await disable(world)
    with pytest.raises(TobanError) as caught:
        await disable(world, reason="another")
    assert caught.value.code is ErrorCode.RESOURCE_INVALID_STATE
    assert caught.value.message == f"job 'hello' is disabled already{WHY}; enable it first"
    with pytest.raises(TobanError) as caught:
        await disable(world, "hallo")
    assert caught.value.code is ErrorCode.JOB_NOT_FOUND and "hello" in caught.value.message


async def test_a_stale_page_does_not_enable_what_was_disabled_again(world: Any, make: Any) -> None:
    await world.apply(make.job())
    seen = (await disable(world))["disabled_at"]
    await enable(world, seen=seen)
    await disable(world, reason="another")
    with pytest.raises(TobanError, match="disabled again meanwhile by user ada: another") as caught:
        await enable(world, seen=seen)
    assert caught.value.code is ErrorCode.CONFLICT
    with pytest.raises(TobanError, match="disabled by user ada: another"):
        await world.start()


async def test_one_of_two_at_the_same_time_is_refused(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.schedule())
    done = await asyncio.gather(*(disable(world, reason=f"{n}") for n in range(2)), return_exceptions=True)
    refused = [one for one in done if isinstance(one, TobanError)]
    assert len(refused) == 1 and refused[0].code is ErrorCode.RESOURCE_INVALID_STATE


async def test_runs_that_are_made_go_on_and_say_that_the_job_is_disabled(world: Any, make: Any) -> None:
    await world.apply(make.job())
    [run] = await world.start()
    await disable(world)
    why = await world.reader.ExplainRun(pb.GetRunRequest(id=run), None)
    [said] = [check for check in why.checks if check.name == "job"]
    assert not said.blocks and said.message.startswith(f"job hello is disabled{WHY}: no new runs")
    await world.executor()
    await world.turn("assign")
    assert await world.state(run) == "ASSIGNED"


async def test_the_audit_has_reason_and_before_and_after(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await disable(world)
    await enable(world)
    rows = await world.sql(
        "SELECT action, target, actor, before, after, reason FROM scheduler.admin_action_log WHERE target = 'job hello' AND action <> 'job.create' "
        "ORDER BY id"
    )
    off, on = rows
    assert (off["action"], off["actor"], off["reason"]) == ("job.disable", BY, "the source moves")
    enabled = {"enabled": True, "disabled_by": "", "disabled_reason": "", "disabled_until": None}
    assert off["before"] == on["after"] == {"version": 1, "schedules": 1, **enabled}
    disabled = {"enabled": False, "disabled_by": BY, "disabled_reason": "the source moves", "disabled_until": None}
    assert off["after"] == on["before"] == {"version": 1, "schedules": 1, **disabled}
    assert (on["action"], on["reason"]) == ("job.enable", "it is back")
    of_schedules = "SELECT action FROM scheduler.admin_action_log WHERE target LIKE 'schedule %%'"
    assert [row["action"] for row in await world.sql(of_schedules)] == ["schedule.create"]


async def test_a_deleted_name_is_free_and_enabled(world: Any, make: Any) -> None:
    await world.apply(make.job())
    await disable(world)
    cancel = CancelRun(pool=world.pool, definitions=world.definitions)
    await DeleteJob(pool=world.pool, cancel=cancel).delete(DeleteRequest(name="hello"), BY)
    assert await world.apply(make.job()) == [("hello", "created", 1)]
    await world.start()
