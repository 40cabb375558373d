"""A job is deleted with what uses it, or not at all; its runs stay and its name is free."""

from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.app.definitions.delete_job import DeleteJob, DeleteRequest
from toban_coordinator.app.runs.cancel import CancelRun
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import common_pb2
from toban_proto.v1 import coordinator_pb2 as pb


async def delete(world: Any, name: str = "hello", **options: Any) -> Any:
    cancel = CancelRun(pool=world.pool, definitions=world.definitions)
    return await DeleteJob(pool=world.pool, cancel=cancel).delete(DeleteRequest(name=name, **options), "user ada")


def trigger(job: str = "hello") -> dict[str, Any]:
    spec = {"event_type": "order.paid", "job": job}
    return {"apiVersion": "toban/v1", "kind": "EventTrigger", "metadata": {"name": "when-paid"}, "spec": spec}


async def jobs(world: Any) -> list[str]:
    return [job.name for job in (await world.reader.ListJobs(pb.ListJobsRequest(), None)).jobs]


async def test_history_stays_readable_and_the_name_is_free(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    await world.finished(run)
    await delete(world, reason="obsolete")
    assert await jobs(world) == []
    with pytest.raises(TobanError) as caught:
        await world.start()
    assert caught.value.code is ErrorCode.JOB_NOT_FOUND
    shown = await world.reader.GetRun(pb.GetRunRequest(id=run), None)
    assert (shown.job, shown.state) == ("hello", "SUCCEEDED")

    assert await world.apply(make.job()) == [("hello", "created", 1)]
    assert await jobs(world) == ["hello"]
    [fresh] = await world.start()
    listed = await world.reader.ListRuns(pb.ListRunsRequest(job="hello", page=common_pb2.Page(limit=10)), None)
    assert [one.id for one in listed.runs] == [fresh, run]
    await world.finished(fresh)
    await delete(world)
    assert await jobs(world) == []


async def test_its_permissions_for_secrets_go_with_it(world: Any, make: Any) -> None:
    await world.sql(
        "INSERT INTO scheduler.secrets (name, key_id, nonce, ciphertext, jobs, created_by, updated_by)"
        " VALUES ('db', '0123456789abcdef', decode(repeat('00', 12), 'hex'), decode(repeat('00', 17), 'hex'), '{hello,other}', 'x', 'x')"
    )
    await world.apply(make.job())
    await delete(world)
    with pytest.raises(TobanError, match="secret 'db' is for other jobs"):
        await world.apply(make.job(secrets=[{"name": "db"}]))
    await world.apply(make.job("other", secrets=[{"name": "db"}]))


async def test_what_uses_it_is_named(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.job("other"), make.schedule(), trigger())
    [run] = await world.start()
    with pytest.raises(TobanError) as caught:
        await delete(world)
    assert caught.value.code is ErrorCode.RESOURCE_INVALID_STATE
    for part in (
        "schedule often (--with-schedules)",
        "trigger when-paid (--with-triggers)",
        f"live run {run} (--cancel-runs)",
    ):
        assert part in caught.value.message
    with pytest.raises(TobanError, match="in use by live run"):
        await delete(world, with_schedules=True, with_triggers=True)
    assert await world.state(run) == "PENDING"
    assert await jobs(world) == ["hello", "other"]
    await delete(world, "other")


async def test_with_everything_that_uses_it(world: Any, make: Any) -> None:
    await world.executor(slots=1)
    await world.apply(make.job(), make.schedule(), trigger())
    first, second = await world.start(count=2)
    await world.turn("assign")
    done = await delete(world, with_schedules=True, with_triggers=True, cancel_runs=True, reason="obsolete")
    assert (done.schedules, done.triggers) == (("often",), ("when-paid",)) and done.canceled >= 2
    assert [await world.state(first), await world.state(second)] == ["CANCEL_REQUESTED", "CANCELED"]
    await world.report(world.key(first), make.outcome("CANCELED"))
    assert await world.state(first) == "CANCELED"
    assert await world.sql("SELECT 1 FROM scheduler.schedules UNION ALL SELECT 1 FROM scheduler.event_triggers") == []
    audited = await world.sql("SELECT action, target, actor, reason, after FROM scheduler.admin_action_log ORDER BY id")
    mine = [tuple(row.values())[:4] for row in audited if row["actor"] == "user ada" and row["action"] != "run.cancel"]
    assert mine == [
        ("schedule.delete", "schedule often", "user ada", "obsolete"),
        ("trigger.delete", "trigger when-paid", "user ada", "obsolete"),
        ("job.delete", "job hello", "user ada", "obsolete"),
    ]
    assert audited[-1]["after"]["schedules"] == ["often"]


async def test_runs_ahead_of_their_slots_go_with_the_schedule(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await world.steady()
    await world.sql("UPDATE scheduler.schedules SET next_run_at = now() + interval '20 seconds'")
    world.time.fixed = None
    await world.turn("fire")
    assert await world.sql("SELECT 1 FROM scheduler.runs_live")
    await delete(world, with_schedules=True)
    assert await world.sql("SELECT 1 FROM scheduler.runs_live") == []
    await world.later(timedelta(minutes=1).total_seconds())
    assert (await world.turn("fire")).moved == 0


async def test_a_run_that_only_a_kill_ends_keeps_its_job(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(cancel={"supported": False}))
    [run] = await world.start()
    await world.turn("assign")
    with pytest.raises(TobanError, match=f"toban run kill {run}") as caught:
        await delete(world, cancel_runs=True)
    assert caught.value.code is ErrorCode.CANCEL_UNSUPPORTED
    assert await jobs(world) == ["hello"]


async def test_an_unknown_job(world: Any, make: Any) -> None:
    await world.apply(make.job())
    with pytest.raises(TobanError, match="did you mean 'hello'") as caught:
        await delete(world, "helo")
    assert caught.value.code is ErrorCode.JOB_NOT_FOUND
