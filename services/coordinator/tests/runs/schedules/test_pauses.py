"""A pause until a time: the leader resumes the schedule, and enables the job, as of that time, once, however late it comes."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_coordinator.app.definitions.delete_job import DeleteJob, DeleteRequest
from toban_coordinator.app.definitions.disable_job import DisableJob
from toban_coordinator.app.runs.cancel import CancelRun
from toban_coordinator.app.schedules import next_slots
from toban_coordinator.decide.schedules import fire
from toban_coordinator.store.schedules import schedules
from toban_domain.errors import ErrorCode, FencedOut, TobanError
from toban_observability import metrics
from toban_proto.v1 import coordinator_pb2 as pb
from toban_schedule import Rule
from toban_store.tx import autocommit


@pytest.fixture
def until(world: Any) -> datetime:
    """On a slot of the schedules of 10 s, in about an hour."""
    return datetime.fromtimestamp(int(world.now().timestamp()) // 10 * 10 + 3600, UTC)


async def disable(world: Any, until: datetime | None, reason: str = "the source moves") -> dict[str, Any]:
    return dict(await DisableJob(pool=world.pool).disable("hello", reason=reason, actor="user ada", until=until))


async def get_job(world: Any) -> pb.Job:
    job: pb.Job = await world.reader.GetJob(pb.GetJobRequest(name="hello"), None)
    return job


async def rows(world: Any) -> list[dict[str, Any]]:
    return list(
        await world.sql("SELECT outcome, first_slot, last_slot, message FROM scheduler.fire_ledger ORDER BY first_slot")
    )


async def resumed(world: Any) -> list[dict[str, Any]]:
    return list(
        await world.sql(
            "SELECT actor, action, target, before, after, reason FROM scheduler.admin_action_log"
            " WHERE action IN ('schedule.resume', 'job.enable') ORDER BY id"
        )
    )


def ended() -> float:
    return sum(value for _, value in metrics.samples("toban_pauses_ended_total"))


async def test_a_schedule_is_resumed_at_the_end_and_the_slot_then_gets_its_run(
    world: Any, make: Any, desk: Any, until: datetime
) -> None:
    await world.apply(make.job(), make.schedule())
    paused = await desk.pause(until=until)
    assert paused.paused_until.ToDatetime(UTC) == until
    note = (await world.reader.NextSlots(pb.NextSlotsRequest(name="often"), None)).note
    assert (
        note.startswith(f"paused until {until:%Y-%m-%dT%H:%M:%SZ} by admin-cli: maintenance; ") and "then, or" in note
    )
    await world.at(until - timedelta(seconds=8))
    turned = await world.turn("pauses")
    assert (turned.moved, turned.next_in) == (0, 8.0) and (await desk.get()).status == "paused"

    before = ended()
    await world.at(until + timedelta(seconds=25))
    assert (await world.turn("pauses")).moved == 1
    now = await desk.get()
    assert (now.status, now.status_reason, now.HasField("paused_until")) == ("active", "", False)
    await world.turn("fire")
    [passed, *fired] = await rows(world)
    assert passed["outcome"] == "paused" and passed["last_slot"] == until - timedelta(seconds=10)
    assert fired[0]["first_slot"] == until and {one["outcome"] for one in fired} == {"fired"}
    [action] = await resumed(world)
    assert (action["actor"], action["target"]) == ("leader", "schedule often")
    assert action["reason"] == f"paused until {until:%Y-%m-%dT%H:%M:%SZ}"
    assert datetime.fromisoformat(action["before"]["paused_until"]) == until and action["after"]["status"] == "active"
    assert ended() == before + 1
    assert (await world.turn("pauses")).moved == 0, "once"


def next_of(message: Any) -> datetime | None:
    return message.next_run_at.ToDatetime(UTC) if message.HasField("next_run_at") else None


async def test_the_next_run_of_a_pause_is_the_first_slot_from_its_end_on(
    world: Any, make: Any, desk: Any, until: datetime, subtests: Any
) -> None:
    await world.apply(make.job(), make.schedule())
    off = until + timedelta(seconds=1)
    by_next = pb.ListJobsRequest(history=1, sort="next_run")

    async def given() -> dict[str, datetime | None]:
        """Wherever a next run is given."""
        [listed] = (await world.reader.ListSchedules(pb.ListSchedulesRequest(), None)).schedules
        [job] = (await world.reader.ListJobs(by_next, None)).jobs
        [of_job] = (await get_job(world)).schedules
        return {
            "schedule": next_of(await desk.get()),
            "list": next_of(listed),
            "job": next_of(job),
            "of": next_of(of_job),
        }

    for name, change, expected in (
        ("paused", lambda: desk.pause(until=off), until + timedelta(seconds=10)),
        (
            "paused, and the job disabled for longer",
            lambda: disable(world, off + timedelta(seconds=60)),
            until + timedelta(seconds=70),
        ),
        ("the job disabled without an end", lambda: disable(world, None), None),
    ):
        await change()
        with subtests.test(name):
            assert set((await given()).values()) == {expected}
    assert (await desk.get()).job_disabled and not (await desk.get()).HasField("job_disabled_until")
    await world.apply(make.job(enabled=False))
    await disable(world, off)
    assert next_of(await desk.get()) is None, "the manifest keeps the job off at the end"
    assert (await desk.get()).job_disabled_until.ToDatetime(UTC) == off


async def test_the_next_runs_of_pauses_are_found_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 of a rare rule take half a second."""
    threads: list[int] = []

    class Watched(Rule):
        def next_slot(self, after: datetime) -> datetime | None:
            threads.append(threading.get_ident())
            return super().next_slot(after)

    monkeypatch.setattr(fire, "Rule", Watched)
    end = datetime(2027, 1, 1, 12, 0, tzinfo=UTC)
    spec = '{"name": "often", "job": "hello", "daily_at": "03:00"}'
    paused, active, broken = (
        {"name": "often", "spec": text, "resumes_at": at, "next_run_at": None}
        for text, at in ((spec, end), (spec, None), ("{}", end))
    )
    found = await next_slots.with_next_after_pause([paused, active, broken])
    assert [row["next_run_at"] for row in found] == [end + timedelta(hours=15), None, None]
    assert len(threads) == 1 and threading.get_ident() not in threads


async def test_a_job_is_enabled_at_the_end_and_the_slot_then_gets_its_run(
    world: Any, make: Any, until: datetime
) -> None:
    await world.apply(make.job(), make.schedule())
    await disable(world, until)
    job = await get_job(world)
    assert (job.enabled, job.disabled_until.ToDatetime(UTC)) == (False, until)
    with pytest.raises(TobanError, match=f"disabled until {until:%Y-%m-%dT%H:%M:%SZ} by user ada: the source moves"):
        await world.start()
    # Slots are skipped ahead of their time, also one that the job will be enabled for.
    await world.at(until - timedelta(seconds=5))
    await world.turn("fire")
    assert (await rows(world))[-1]["last_slot"] >= until
    await world.at(until + timedelta(seconds=1))
    assert (await world.turn("pauses")).moved == 1
    job = await get_job(world)
    assert (job.enabled, job.HasField("disabled_at"), job.HasField("disabled_until")) == (True, False, False)
    await world.turn("fire")
    found = await rows(world)
    assert max(one["last_slot"] for one in found if one["outcome"] == "disabled") == until - timedelta(seconds=10)
    assert min(one["first_slot"] for one in found if one["outcome"] == "fired") == until
    [action] = await resumed(world)
    assert (action["actor"], action["action"], action["target"]) == ("leader", "job.enable", "job hello")
    assert datetime.fromisoformat(action["before"]["disabled_until"]) == until and action["after"]["enabled"]
    await world.start()


async def test_a_manifest_that_disables_the_job_is_not_overruled(world: Any, make: Any, until: datetime) -> None:
    await world.apply(make.job())
    await disable(world, until)
    await world.apply(make.job(enabled=False))
    assert (await get_job(world)).HasField("disabled_until"), "an apply keeps it"
    await world.at(until)
    await world.turn("pauses")
    job = await get_job(world)
    assert (job.enabled, job.HasField("disabled_at")) == (False, False)


async def test_the_next_leader_ends_what_the_one_before_left(
    world: Any, make: Any, desk: Any, until: datetime, new_term: Any
) -> None:
    await world.apply(make.job(), make.schedule())
    await desk.pause(until=until)
    await disable(world, until)
    await world.at(until)
    old = world.loops["pauses"]
    world.take(await new_term(2))
    with pytest.raises(FencedOut):
        await old._work()
    assert (await desk.get()).status == "paused" and not (await get_job(world)).enabled and await resumed(world) == []
    assert (await world.turn("pauses")).moved == 2
    assert (await desk.get()).status == "active" and (await get_job(world)).enabled
    with pytest.raises(FencedOut):
        await new_term(3)
        await desk.pause(until=until + timedelta(hours=1))
        await world.at(until + timedelta(hours=2))
        await world.turn("pauses")
    assert len(await resumed(world)) == 2


async def test_a_person_who_is_quicker_wins(
    world: Any, make: Any, desk: Any, until: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the turn read is stale: each end looks at the locked row again."""
    await world.apply(make.job(), make.schedule(), make.schedule("other"), make.schedule("gone"))
    for name in ("often", "other", "gone"):
        await desk.pause(name, until=until)
    await disable(world, until)
    async with autocommit(world.pool) as t:
        seen = await schedules.pause_ends(t, limit=9)
    assert [one.name for one in seen] == ["hello", "gone", "often", "other"]

    async def stale(t: Any, *, limit: int) -> Any:
        return seen

    monkeypatch.setattr(schedules, "pause_ends", stale)
    await desk.pause("often", reason="longer", until=until + timedelta(hours=1))
    await desk.resume("other")
    await desk.delete("gone")
    await disable(world, None, "for good")
    await world.at(until)
    assert (await world.turn("pauses")).moved == 0
    often = await desk.get()
    assert (often.status, often.status_reason) == ("paused", "longer") and often.HasField("paused_until")
    job = await get_job(world)
    assert (job.enabled, job.disabled_reason, job.HasField("disabled_until")) == (False, "for good", False)


async def test_another_time_replaces_the_one_before_and_the_same_is_refused(
    world: Any, make: Any, desk: Any, until: datetime
) -> None:
    await world.apply(make.job(), make.schedule())
    await desk.pause(until=until)
    await disable(world, until)
    for again in (lambda: desk.pause(until=until), lambda: disable(world, until)):
        with pytest.raises(TobanError) as caught:
            await again()
        assert caught.value.code is ErrorCode.RESOURCE_INVALID_STATE and "already" in caught.value.message
    assert not (await desk.pause(until=None)).HasField("paused_until"), "without an end now"
    assert (await disable(world, None))["disabled_until"] is None
    await world.at(until)
    assert (await world.turn("pauses")).moved == 0
    await desk.pause(until=until + timedelta(hours=1))
    assert not (await desk.resume()).HasField("paused_until"), "a person's resume clears it"


async def test_a_time_that_is_past_or_far_ahead_changes_nothing(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule())
    for wrong in (world.now() - timedelta(seconds=1), world.now() + timedelta(days=400)):
        for call in (lambda at=wrong: desk.pause(until=at), lambda at=wrong: disable(world, at)):
            with pytest.raises(TobanError, match="until is ") as caught:
                await call()
            assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert (await desk.get()).status == "active" and (await get_job(world)).enabled


async def test_an_edit_after_the_end_loses_no_slot(world: Any, make: Any, desk: Any, until: datetime) -> None:
    """The leader was away for the end, and a person applied the schedule meanwhile."""
    await world.apply(make.job(), make.schedule())
    await desk.pause(until=until)
    # The end was an hour ago.
    back = timedelta(hours=2)
    await world.sql(
        "UPDATE scheduler.schedules SET paused_until = paused_until - %(b)s, next_run_at = next_run_at - %(b)s,"
        " created_at = created_at - %(b)s",
        b=back,
    )
    await world.apply(make.job(), make.schedule(payload={"n": 1}))
    assert (await desk.get()).status == "paused"
    assert (await world.turn("pauses")).moved == 1
    await world.turn("fire")
    [passed, *others] = await rows(world)
    assert passed["last_slot"] == until - back - timedelta(seconds=10), "what the edit passed by is free again"
    assert others[0]["first_slot"] == until - back


async def test_a_schedule_that_was_made_after_the_end_has_no_slots_before(
    world: Any, make: Any, until: datetime
) -> None:
    """The leader was away for the end, and a person made a schedule of the job that was still disabled."""
    await world.apply(make.job())
    await disable(world, until)
    await world.sql("UPDATE scheduler.job_definitions SET disabled_until = disabled_until - interval '2 hours'")
    made = world.now()
    await world.apply(make.job(), make.schedule())
    assert (await world.turn("pauses")).moved == 1
    await world.turn("fire")
    found = await rows(world)
    assert found and all(one["outcome"] == "fired" and one["first_slot"] > made for one in found)


async def test_one_that_cannot_be_ended_keeps_no_other_from_it(
    world: Any, make: Any, desk: Any, until: datetime
) -> None:
    await world.apply(make.job(), make.schedule(), make.schedule("other"))
    await desk.pause(until=until)
    await desk.pause("other", until=until)
    await world.sql(
        "ALTER TABLE scheduler.schedules ADD CONSTRAINT a_fault CHECK (name <> 'often' OR status = 'paused') NOT VALID"
    )
    await world.at(until)
    with pytest.raises(TobanError, match="a_fault"):
        await world.turn("pauses")
    assert ((await desk.get()).status, (await desk.get("other")).status) == ("paused", "active")


async def test_a_deleted_job_has_no_end(world: Any, make: Any, until: datetime) -> None:
    await world.apply(make.job())
    await disable(world, until)
    cancel = CancelRun(pool=world.pool, definitions=world.definitions)
    await DeleteJob(pool=world.pool, cancel=cancel).delete(DeleteRequest(name="hello"), "user ada")
    await world.at(until)
    turned = await world.turn("pauses")
    assert (turned.moved, turned.next_in) == (0, None)
