"""Pause, resume, delete, edit: what is due is settled first, what is to come is taken back, and all of it is written down."""

import json
from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.app.cluster.audit_log import list_audit
from toban_coordinator.app.definitions.apply import Apply
from toban_coordinator.app.manifests import ManifestText
from toban_coordinator.app.paging import PageRequest
from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics


async def live(world: Any) -> list[str]:
    rows = await world.sql("SELECT state::text AS state FROM scheduler.runs_live WHERE origin = 'slot' ORDER BY slot")
    return [row["state"] for row in rows]


@pytest.mark.seed(211)
@pytest.mark.usefixtures("young_period")
async def test_a_pause_takes_back_what_is_to_come_and_says_why(world: Any, make: Any, desk: Any) -> None:
    await world.executor()
    await world.apply(make.job(), make.schedule())
    await world.turn("fire", "assign")
    assert await live(world) == ["ASSIGNED"] * 3
    paused = await desk.pause(reason="the database is moved")
    assert (paused.status, paused.status_reason, paused.status_actor) == (
        "paused",
        "the database is moved",
        "admin-cli",
    )
    assert not paused.HasField("next_run_at") and paused.version == 2
    assert await live(world) == [] and await desk.ledger() == [("withdrawn", 1)] * 3
    [row] = await world.sql("SELECT reason, error_summary, state::text AS state FROM scheduler.runs_history LIMIT 1")
    assert (row["state"], row["reason"]) == ("SKIPPED", "withdrawn")
    await world.turn("fire")
    assert await live(world) == []
    [_, action] = await desk.actions()
    assert (action["actor"], action["action"], action["target"]) == ("admin-cli", "schedule.pause", "schedule often")
    assert action["reason"] == "the database is moved"
    before, after = action["before"], action["after"]
    assert (before["status"], after["status"]) == ("active", "paused") and "spec" not in before
    assert before.keys() == after.keys(), "so the difference is what was changed"


@pytest.mark.usefixtures("young_period")
async def test_what_is_due_at_the_pause_gets_its_run(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await desk.passed(10)
    await desk.pause()
    assert (await desk.ledger())[:2] == [("fired", 1)] * 2 and await live(world) == ["PENDING"] * 2


@pytest.mark.parametrize(
    ("rule", "seconds", "slots"),
    [
        ({"interval_seconds": 10}, 100, 11),
        # A month of seconds: one row, and no walk through each of them.
        ({"interval_seconds": 1}, 30 * 86_400, 30 * 86_400 + 1),
        ({"cron": "*/10 * * * * *", "timezone": "Europe/Berlin"}, 86_400, 8641),
    ],
)
@pytest.mark.usefixtures("young_period")
async def test_slots_of_a_pause_are_one_row(
    world: Any, make: Any, desk: Any, rule: dict[str, Any], seconds: int, slots: int
) -> None:
    await world.apply(make.job(), make.schedule(**rule))
    # No slot comes before the pause, however long the apply took.
    await world.sql("UPDATE scheduler.schedules SET next_run_at = now() + interval '1 hour'")
    await desk.pause(reason="for a while")
    first = await desk.passed(seconds)
    resumed = await desk.resume()
    assert (resumed.status, resumed.status_reason, resumed.status_actor) == ("active", "", "")
    [row] = (await desk.fires()).fires
    assert row.outcome == "paused" and row.message == "the schedule was paused: for a while"
    # The clock goes on while the test runs.
    assert slots <= row.slots <= slots + 10 and row.first_slot.ToDatetime(first.tzinfo) == first
    assert row.last_slot.ToDatetime(first.tzinfo) < resumed.next_run_at.ToDatetime(first.tzinfo)


async def test_a_resume_takes_over_what_the_pause_took_back(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await world.turn("fire")
    await desk.pause()
    # A slot may have come before the pause.
    await world.sql("DELETE FROM scheduler.fire_ledger WHERE outcome = 'fired'")
    [row] = await world.sql("SELECT min(first_slot) AS first FROM scheduler.fire_ledger")
    # The slots that the pause took back pass.
    await world.sql(
        "UPDATE scheduler.fire_ledger SET first_slot = first_slot - interval '1 day', last_slot = last_slot - interval '1 day'"
    )
    await world.sql("UPDATE scheduler.schedules SET next_run_at = %(n)s", n=row["first"] - timedelta(days=1))
    await desk.resume()
    [(outcome, slots)] = await desk.ledger()
    assert outcome == "paused" and slots >= 8640
    await world.turn("fire")
    first, *others = [outcome for outcome, _ in await desk.ledger()]
    # The slots of 30 s, and those that came between the resume and this turn.
    assert first == "paused" and len(others) >= 3 and set(others) == {"fired"}


@pytest.mark.usefixtures("young_period")
async def test_a_short_pause_loses_no_slot(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await world.turn("fire")
    before = await world.sql("SELECT slot FROM scheduler.run_slots ORDER BY slot")
    await desk.pause()
    await desk.resume()
    await world.turn("fire")
    after = await world.sql("SELECT slot FROM scheduler.run_slots ORDER BY slot")
    assert [row["slot"] for row in before][1:] == [row["slot"] for row in after][: len(before) - 1] or before == after
    assert await live(world) == ["PENDING"] * len(after)


@pytest.mark.seed(178)
async def test_a_schedule_that_fails_for_good_is_removed_where_it_says_so(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule(on_failure="remove"))
    await world.apply(make.job(payload_schema={"type": "object", "required": ["n"]}), force=True)
    first = await desk.passed(50)
    for _ in range(5):
        await world.sql("UPDATE scheduler.schedules SET fire_retry_at = NULL")
        await world.turn("fire")
    assert await world.sql("SELECT status FROM scheduler.schedules") == [{"status": "active"}]
    await world.sql("UPDATE scheduler.schedules SET fire_retry_at = NULL")
    await world.turn("fire")
    assert await world.sql("SELECT 1 FROM scheduler.schedules") == []
    [row] = (await desk.fires()).fires
    assert row.outcome == "submit_failed" and row.slots >= 5 and row.first_slot.ToDatetime(first.tzinfo) == first
    [action] = await world.sql(
        "SELECT actor, target, reason FROM scheduler.admin_action_log WHERE action = 'schedule.delete'"
    )
    assert (action["actor"], action["target"]) == ("leader", "schedule often")
    assert action["reason"].startswith("on_failure: ") and "payload" in action["reason"]
    await world.apply(make.job(), make.schedule())
    await world.turn("fire")
    assert min(
        one["slot"] for one in await world.sql("SELECT slot FROM scheduler.run_slots")
    ) > row.last_slot.ToDatetime(first.tzinfo)


async def test_a_resume_is_audited_with_its_reason(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await desk.pause()
    await desk.resume(reason="it is over")
    newest = (await list_audit(world.pool, PageRequest())).rows[0]
    assert (newest["action"], newest["reason"]) == ("schedule.resume", "it is over")


@pytest.mark.usefixtures("young_period")
async def test_resume_clears_a_failure(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await world.apply(make.job(payload_schema={"type": "object", "required": ["n"]}), force=True)
    first = await desk.passed(50)
    failures = "toban_schedule_fire_failures_total"
    before = sum(value for _, value in metrics.samples(failures))
    for _ in range(6):
        await world.sql("UPDATE scheduler.schedules SET fire_retry_at = NULL")
        await world.turn("fire")
    assert sum(value for _, value in metrics.samples(failures)) == before + 6
    failed = await desk.get()
    assert (failed.status, failed.status_actor) == ("failed", "leader") and "payload" in failed.status_reason
    await world.turn("cluster_metrics")
    assert {labels["status"]: value for labels, value in metrics.samples("toban_schedules")} == {
        "active": 0,
        "paused": 0,
        "failed": 1,
        "disabled": 0,
    }
    await world.apply(make.job())
    resumed = await desk.resume()
    assert (resumed.status, resumed.status_reason, resumed.last_error) == ("active", "", "")
    [row] = (await desk.fires()).fires
    assert row.outcome == "submit_failed" and row.slots >= 6 and "payload" in row.message
    assert row.first_slot.ToDatetime(first.tzinfo) == first
    await world.turn("fire")
    assert len(await live(world)) == 3


async def test_an_edit_clears_a_failure_and_keeps_a_pause(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await desk.pause(reason="waiting")
    await world.apply(make.schedule(interval_seconds=20))
    paused = await desk.get()
    assert (paused.status, paused.status_reason, paused.version) == ("paused", "waiting", 3)
    await world.sql("UPDATE scheduler.schedules SET status = 'failed', status_reason = 'broken'")
    await world.apply(make.schedule(interval_seconds=30))
    active = await desk.get()
    assert (active.status, active.status_reason) == ("active", "")


@pytest.mark.parametrize(
    ("twice", "words"),
    [
        ("pause", "is paused already by admin-cli (maintenance); resume it first"),
        ("resume", "is neither paused nor failed"),
    ],
)
async def test_what_is_so_already_is_said(world: Any, make: Any, desk: Any, twice: str, words: str) -> None:
    await world.apply(make.job(), make.schedule())
    if twice == "pause":
        await desk.pause()
    with pytest.raises(TobanError) as caught:
        await getattr(desk, twice)()
    assert caught.value.code is ErrorCode.RESOURCE_INVALID_STATE and words in caught.value.message
    assert (await desk.get()).version == (2 if twice == "pause" else 1)


@pytest.mark.seed(172)
@pytest.mark.parametrize("call", ["pause", "resume", "delete", "get", "fires"])
async def test_an_unknown_name_has_a_near_one(world: Any, make: Any, desk: Any, call: str) -> None:
    await world.apply(make.job(), make.schedule())
    with pytest.raises(TobanError) as caught:
        await getattr(desk, call)("oftn")
    assert caught.value.code is ErrorCode.SCHEDULE_NOT_FOUND and "did you mean 'often'?" in caught.value.message
    with pytest.raises(TobanError):
        await getattr(desk, call)("")


@pytest.mark.seed(173)
@pytest.mark.usefixtures("young_period")
async def test_a_deleted_schedule_leaves_its_ledger_and_its_runs(world: Any, make: Any, desk: Any) -> None:
    await world.executor()
    await world.apply(make.job(concurrency={"policy": "allow"}), make.schedule())
    await desk.passed(10)
    await world.turn("fire", "assign")
    assert await live(world) == ["ASSIGNED"] * 5
    gone = await desk.delete(reason="not needed")
    # Two slots have passed, or three where the next one has begun meanwhile.
    assert gone in (2, 3)
    assert await live(world) == ["ASSIGNED"] * (5 - gone)
    assert len(world.orders.starts) == 2
    with pytest.raises(TobanError):
        await desk.get()
    fires = (await desk.fires()).fires
    assert [fire.outcome for fire in fires] == ["fired"] * (5 - gone)
    # The slots to come are told when they have passed.
    await world.sql(
        "UPDATE scheduler.fire_ledger SET first_slot = first_slot - interval '1 h' WHERE outcome = 'withdrawn'"
    )
    fires = (await desk.fires()).fires
    assert [fire.outcome for fire in fires] == ["fired"] * (5 - gone) + ["withdrawn"] * gone
    assert all("deleted" in fire.message for fire in fires[-gone:])
    [row] = await world.sql("SELECT name, deleted_by, reason, settled_until FROM scheduler.schedules_deleted")
    assert (row["name"], row["deleted_by"], row["reason"]) == ("often", "admin-cli", "not needed")
    assert (await desk.actions())[-1]["action"] == "schedule.delete"
    rows = await world.sql("SELECT DISTINCT schedule_name FROM scheduler.runs_live")
    assert [row["schedule_name"] for row in rows] == ["often"]


async def test_a_deleted_schedule_is_forgotten_with_its_ledger(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule(), make.schedule("other"))
    await world.turn("fire")
    await desk.delete()
    await desk.delete("other")
    await world.sql("UPDATE scheduler.schedules_deleted SET deleted_at = now() - interval '999 days'")
    await world.sql(
        "DELETE FROM scheduler.fire_ledger WHERE schedule_id = (SELECT id FROM scheduler.schedules_deleted WHERE name = 'other')"
    )
    await world.turn("prune")
    rows = await world.sql("SELECT name FROM scheduler.schedules_deleted")
    assert [row["name"] for row in rows] == ["often"]


async def test_one_created_again_begins_where_the_deleted_one_ended(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await desk.delete()
    [gone] = await world.sql(
        "UPDATE scheduler.schedules_deleted SET settled_until = now() + interval '1 h' RETURNING *"
    )
    await world.apply(make.schedule())
    [row] = await world.sql("SELECT next_run_at FROM scheduler.schedules")
    assert timedelta() < row["next_run_at"] - gone["settled_until"] <= timedelta(seconds=10)


@pytest.mark.usefixtures("young_period")
async def test_a_slot_that_was_sent_early_is_not_taken_back(world: Any, make: Any, desk: Any) -> None:
    """The leader's clock is a little ahead: it has sent the run of a slot that has not come yet by PostgreSQL's."""
    await world.executor()
    await world.apply(make.job(), make.schedule())
    [row] = await world.sql("SELECT next_run_at FROM scheduler.schedules")
    await world.at(row["next_run_at"])
    await world.turn("fire", "assign")
    await desk.delete()
    assert await live(world) == ["ASSIGNED"]
    await world.apply(make.schedule())
    [anew] = await world.sql("SELECT next_run_at FROM scheduler.schedules")
    assert anew["next_run_at"] == row["next_run_at"] + timedelta(seconds=10)
    # An edit of the one made anew does not go back before that either.
    await world.apply(make.schedule(payload={"x": 1}))
    [edited] = await world.sql("SELECT next_run_at FROM scheduler.schedules")
    assert edited["next_run_at"] == anew["next_run_at"]


@pytest.mark.usefixtures("young_period")
async def test_slots_that_a_disabled_job_skipped_ahead_are_free_for_an_edit(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(enabled=False), make.schedule())
    await desk.passed(20)
    await world.turn("fire")
    [(outcome, slots)] = await desk.ledger()
    assert outcome == "disabled" and slots >= 5
    await world.apply(make.job(), make.schedule(payload={"x": 1}))
    [(outcome, kept)] = await desk.ledger()
    assert outcome == "disabled" and kept in (slots - 3, slots - 2)
    await world.turn("fire")
    assert [name for name, _ in await desk.ledger()] == ["disabled", "fired", "fired", "fired"]


@pytest.mark.usefixtures("young_period")
async def test_a_rule_that_cannot_be_read_any_more_can_be_corrected(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule(), make.schedule("other"))
    await world.sql('UPDATE scheduler.schedules SET spec = spec || \'{"timezone": "Mars/Crater", "cron": "x"}\'')
    await desk.passed(20)
    await desk.pause()
    await desk.resume()
    await world.apply(make.schedule())
    assert (await desk.ledger())[0] == ("submit_failed", 1)
    assert await desk.delete("other") == 0


async def test_a_job_that_is_broken_does_not_keep_its_schedule(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await world.sql("UPDATE scheduler.job_definition_versions SET spec = '{}'")
    await desk.passed(20)
    await desk.delete()
    assert (await desk.ledger())[0][0] == "submit_failed"


async def test_an_edit_while_very_much_is_due_is_put_off(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await desk.passed(10 * 40_000)
    with pytest.raises(TobanError) as caught:
        await desk.pause()
    assert caught.value.code is ErrorCode.UNAVAILABLE and "in a moment" in caught.value.message
    assert (await desk.get()).status == "active"


async def test_what_the_caller_expects_is_checked(world: Any, make: Any, desk: Any) -> None:
    def text(version: int, kind: str = "schedule", **spec: Any) -> list[ManifestText]:
        body = make.schedule(**spec) if kind == "schedule" else make.job(**spec)
        return [ManifestText(json=json.dumps(body), expect_version=version)]

    apply = Apply(pool=world.pool)
    await world.apply(make.job())
    with pytest.raises(TobanError) as caught:
        await apply.apply(text(3), actor="admin-cli")
    assert caught.value.code is ErrorCode.CONFLICT and "is gone" in caught.value.message
    [made] = await apply.apply(text(0), actor="admin-cli")
    assert (made.action, made.version, len(made.next_slots), made.note) == ("created", 1, 3, "")
    with pytest.raises(TobanError) as caught:
        await apply.apply(text(0), actor="admin-cli")
    assert caught.value.code is ErrorCode.ALREADY_EXISTS and "version 1" in caught.value.message
    [done] = await apply.apply(text(1, interval_seconds=20), actor="admin-cli")
    assert (done.action, done.version) == ("updated", 2)
    with pytest.raises(TobanError) as caught:
        await apply.apply(text(1, interval_seconds=30), actor="admin-cli")
    assert caught.value.code is ErrorCode.CONFLICT and "is at version 2 now, not 1" in caught.value.message
    with pytest.raises(TobanError) as caught:
        await apply.apply(text(0, "job"), actor="admin-cli")
    assert caught.value.code is ErrorCode.ALREADY_EXISTS and "job 'hello'" in caught.value.message
