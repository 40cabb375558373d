"""Reruns: a finished run again, as it was or with changes; notes about runs."""

import json
from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.app.definitions.delete_job import DeleteJob, DeleteRequest
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.runs.cancel import CancelRun
from toban_coordinator.app.runs.rerun import MAX_NOTES, RerunRequest, RunRepeats
from toban_coordinator.app.runs.start_runs import StartRuns
from toban_domain.access import MAX_REASON
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import Reason, StepResult
from toban_proto.v1 import coordinator_pb2 as pb


def repeats(world: Any) -> RunRepeats:
    start = StartRuns(
        pool=world.pool, definitions=world.definitions, payloads=PayloadValidator(), fast_path=world.fast_path
    )
    return RunRepeats(pool=world.pool, start=start)


async def rerun(world: Any, run: int, **changes: Any) -> int:
    return (await repeats(world).rerun(RerunRequest(run_id=run, **changes), "user ada")).run_id


async def ended(world: Any, make: Any, *, payload: dict[str, Any] | None = None, **fields: Any) -> int:
    await world.executor()
    await world.apply(make.job(default_payload={"size": 1, "colour": "red"}, priority=3))
    [run] = await world.start(payload_json=json.dumps(payload or {"size": 2}), **fields)
    await world.turn("assign")
    await world.report(world.key(run), make.outcome("FAILED", exit_code=3))
    return int(run)


async def test_as_it_was_whatever_the_job_has_become(world: Any, make: Any) -> None:
    run = await ended(world, make, scope="account", scope_id="17", priority=8)
    await world.apply(make.job(default_payload={"size": 9, "new": True}))
    again = await world.run(await rerun(world, run, reason="the disk was full"))
    assert (again["origin"], again["rerun_of"], again["state"]) == ("rerun", run, "PENDING")
    assert again["payload"] == {"size": 2, "colour": "red"}
    assert (again["definition_version"], again["priority"]) == (1, 8)
    assert (again["scope"], again["scope_id"], again["created_by"]) == ("account", "17", "user ada")
    assert again["scheduled_for"] == again["created_at"]


@pytest.mark.parametrize(("priority", "repeated"), [(8, 3), (-2, -2)])
async def test_a_priority_above_that_of_the_job_is_repeated_for_who_may_give_it(
    world: Any, make: Any, priority: int, repeated: int
) -> None:
    run = await ended(world, make, priority=priority)
    assert (await world.run(await rerun(world, run, raises_priority=False)))["priority"] == repeated


async def test_both_runs_name_each_other(world: Any, make: Any) -> None:
    run = await ended(world, make)
    first, second = await rerun(world, run, reason="the disk was full"), await rerun(world, run)
    old = await world.reader.GetRun(pb.GetRunRequest(id=run), None)
    new = await world.reader.GetRun(pb.GetRunRequest(id=first), None)
    assert list(old.reruns) == [first, second] and new.rerun_of == run
    assert (old.events[-2].type, old.events[-2].actor) == ("rerun", "user ada")
    assert old.events[-2].message == f"run {first} repeats it: the disk was full"
    assert new.events[0].message == f"repeats run {run}"
    assert not new.reruns


async def test_with_changes(world: Any, make: Any) -> None:
    run = await ended(world, make)
    await world.apply(make.job(default_payload={"size": 9, "new": True}, priority=1))
    changed = await world.run(
        await rerun(
            world, run, payload_json='{"size": 5}', latest_definition=True, priority=4, scope="user", scope_id="a"
        )
    )
    assert changed["payload"] == {"size": 5, "colour": "red", "new": True}
    assert (changed["definition_version"], changed["priority"], changed["scope"]) == (2, 4, "user")
    fresh = await world.run(await rerun(world, run, payload_json='{"own": 1}', replace_payload=True))
    assert fresh["payload"] == {"size": 1, "colour": "red", "own": 1}


async def test_a_rerun_runs_like_any_other(world: Any, make: Any) -> None:
    run = await ended(world, make)
    again = await rerun(world, run)
    await world.finished(again)
    assert await world.state(again) == "SUCCEEDED"
    assert (await world.run(again))["rerun_of"] == run


async def test_a_key_makes_one_rerun(world: Any, make: Any) -> None:
    run = await ended(world, make)
    first = await rerun(world, run, idempotency_key="again")
    assert await rerun(world, run, idempotency_key="again") == first
    assert (await world.events(run)).count("rerun") == 1


@pytest.mark.seed(59)
async def test_a_run_that_was_skipped_is_repeated_by_hand(world: Any, make: Any) -> None:
    await world.apply(make.job(skip_late_after_seconds=60))
    [run] = await world.start()
    world.time.offset = timedelta(seconds=61)
    await world.turn("reap")
    assert await world.state(run) == "SKIPPED"
    again = await world.run(await rerun(world, run))
    assert (again["rerun_of"], again["state"]) == (run, "PENDING")


async def test_only_what_has_ended_is_repeated(world: Any, make: Any) -> None:
    await world.apply(make.job())
    [run] = await world.start()
    with pytest.raises(TobanError, match=f"run {run} is PENDING: only a finished run is repeated") as caught:
        await rerun(world, run)
    assert caught.value.code is ErrorCode.RESOURCE_INVALID_STATE
    with pytest.raises(TobanError, match="there is no run 999999; `toban run list` shows the runs that are kept"):
        await rerun(world, 999_999)


async def test_the_payload_is_checked_by_the_version_that_runs(world: Any, make: Any) -> None:
    run = await ended(world, make)
    schema = {"type": "object", "properties": {"size": {"type": "string"}}}
    await world.apply(make.job(payload_schema=schema))
    await rerun(world, run)
    with pytest.raises(TobanError) as caught:
        await rerun(world, run, latest_definition=True)
    assert caught.value.code is ErrorCode.PAYLOAD_INVALID


async def test_a_disabled_job_is_not_repeated(world: Any, make: Any) -> None:
    run = await ended(world, make)
    await world.apply(make.job(enabled=False))
    with pytest.raises(TobanError, match="disabled") as caught:
        await rerun(world, run)
    assert caught.value.code is ErrorCode.JOB_DISABLED


async def test_the_policy_of_the_job_holds(world: Any, make: Any) -> None:
    policy = {"policy": "reject_same_scope", "dedupe_keys": ["scope"]}
    await world.executor()
    await world.apply(make.job(concurrency=policy))
    [run] = await world.start()
    await world.finished(run)
    first = await rerun(world, run)
    with pytest.raises(TobanError, match=f"run {first} of job 'hello' is live") as caught:
        await rerun(world, run)
    assert caught.value.code is ErrorCode.DUPLICATE_SCOPE


async def test_a_rerun_needs_a_job_of_that_name(world: Any, make: Any) -> None:
    run = await ended(world, make)
    cancel = CancelRun(pool=world.pool, definitions=world.definitions)
    await DeleteJob(pool=world.pool, cancel=cancel).delete(DeleteRequest(name="hello"), "user ada")
    with pytest.raises(TobanError) as caught:
        await rerun(world, run)
    assert caught.value.code is ErrorCode.JOB_NOT_FOUND
    await world.apply(make.job())
    with pytest.raises(TobanError, match="was deleted and made again") as caught:
        await rerun(world, run)
    assert caught.value.code is ErrorCode.CONFLICT
    assert (await world.run(await rerun(world, run, latest_definition=True)))["rerun_of"] == run


async def test_a_note_is_among_the_events_with_secrets_masked(world: Any, make: Any) -> None:
    run = await ended(world, make)
    await repeats(world).note(run, " looked into it, password=hunter2 was wrong ", actor="user ada")
    await repeats(world).note(run, " looked into it, password=hunter2 was wrong ", actor="user ada")
    found = await world.reader.GetRun(pb.GetRunRequest(id=run), None)
    [note] = [event for event in found.events if event.type == "note"]
    assert (note.message, note.actor) == ("looked into it, password=*** was wrong", "user ada")
    assert (note.from_state, note.to_state) == ("", "")


async def test_notes_are_bounded(world: Any, make: Any) -> None:
    run = await ended(world, make)
    for text in ("", " ", "x" * (MAX_REASON + 1)):
        with pytest.raises(TobanError, match=f"write 1 to {MAX_REASON}"):
            await repeats(world).note(run, text, actor="user ada")
    for number in range(MAX_NOTES):
        await repeats(world).note(run, f"note {number}", actor="user ada")
    with pytest.raises(TobanError, match=f"{MAX_NOTES} notes already") as caught:
        await repeats(world).note(run, "one more", actor="user ada")
    assert caught.value.code is ErrorCode.RESOURCE_INVALID_STATE
    with pytest.raises(TobanError, match="there is no run"):
        await repeats(world).note(999_999, "hello", actor="user ada")


STEPS = [{"id": name, "argv": ["true"]} for name in ("load", "pack", "send")]
EXTERNAL = {"id": "work", "type": "external", "worker_type": "render"}


def step(world: Any, index: int, exit_code: int = 0) -> StepResult:
    return StepResult(index, world.now(), world.now(), exit_code, seq_from=1, seq_to=2)


async def failed(world: Any, make: Any, *, at: int = 1, **spec: Any) -> int:
    """A run of three steps that failed at the one with this index."""
    await world.executor()
    await world.apply(make.job(**({"steps": STEPS} | spec)))
    [run] = await world.start()
    await world.turn("assign")
    await fail(world, make, run, *range(at + 1))
    return int(run)


async def fail(world: Any, make: Any, run: int, *indexes: int) -> None:
    """The attempt of a run starts these steps, of which the last one fails."""
    *done, last = indexes
    steps = (*(step(world, one) for one in done), step(world, last, 4))
    await world.report(world.key(run), make.outcome("FAILED", exit_code=4, steps=steps))


def first_steps(world: Any, run: int) -> list[int]:
    return [order.first_step for _, order in world.orders.starts if order.key.run_id == run]


async def read(world: Any, run: int) -> pb.Run:
    return await world.reader.GetRun(pb.GetRunRequest(id=run), None)


async def test_from_the_failed_step(world: Any, make: Any) -> None:
    run = await failed(world, make)
    again = await rerun(world, run, from_failed_step=True, payload_json='{"size": 7}', reason="the disk was full")
    waiting = await read(world, again)
    assert [one.state for one in waiting.steps] == ["skipped", "pending", "pending"]
    assert [(one.type, one.message) for one in waiting.events] == [
        ("created", f"repeats run {run}"),
        ("begins_at_step", f"begins with step 2 (pack), where run {run} ended"),
    ]
    [row] = await world.sql("SELECT * FROM scheduler.admin_action_log WHERE action = 'run.rerun'")
    assert (row["target"], row["before"], row["reason"]) == (f"run {again}", {"run": run}, "the disk was full")
    assert row["after"] == {"jobs": ["hello"], "from_step": "pack"}
    await world.turn("assign")
    assert first_steps(world, again) == [1]
    await world.report(world.key(again), make.outcome(steps=(step(world, 1), step(world, 2))))
    done = await read(world, again)
    assert (done.state, [one.state for one in done.steps]) == ("SUCCEEDED", ["skipped", "succeeded", "succeeded"])
    assert json.loads(done.payload_json) == {"size": 7} and done.failed_step == 0


@pytest.mark.parametrize(("where", "second"), [("first_step", 1), ("failed_step", 2)])
async def test_no_retry_and_no_repeat_goes_back_before_that_step(
    world: Any, make: Any, where: str, second: int
) -> None:
    run = await failed(world, make, retry={"max_retries": 1, "backoff_seconds": [0], "from": where})
    await world.turn("assign")
    await fail(world, make, run, *range(first_steps(world, run)[-1], 2))
    assert (await read(world, run)).failed_step == 2
    again = await rerun(world, run, from_failed_step=True)
    await world.turn("assign")
    await fail(world, make, again, 1, 2)
    await world.turn("assign")
    await world.report(world.key(again), make.outcome("FAILED", reason=Reason.LEASE_LOST))
    await world.turn("reap", "assign")
    assert first_steps(world, again) == [1, second, second]
    assert await world.state(again) == "ASSIGNED"


async def test_from_the_step_at_which_a_rerun_failed_again(world: Any, make: Any) -> None:
    run = await failed(world, make)
    second = await rerun(world, run, from_failed_step=True)
    await world.turn("assign")
    # It was sent and started no step.
    await world.report(world.key(second), make.outcome("FAILED", reason=Reason.SPAWN_FAILED))
    assert (await read(world, second)).failed_step == 2
    third = await rerun(world, second, from_failed_step=True)
    whole = await rerun(world, second)
    await world.turn("assign")
    assert (first_steps(world, third), first_steps(world, whole)) == ([1], [0])


@pytest.mark.parametrize(
    ("at", "steps", "changes", "why"),
    [
        (0, STEPS, {}, "it is FAILED and did not get beyond its first step; repeat the whole run"),
        (0, STEPS[:1], {}, "its job has one step; repeat the whole run"),
        (1, STEPS, {"latest_definition": True}, "from_failed_step and latest_definition exclude each other"),
    ],
)
async def test_without_steps_that_have_succeeded_only_the_whole_run_is_repeated(
    world: Any, make: Any, at: int, steps: Any, changes: dict[str, bool], why: str
) -> None:
    run = await failed(world, make, at=at, steps=steps)
    with pytest.raises(TobanError, match=why):
        await rerun(world, run, from_failed_step=True, **changes)
    assert await world.sql("SELECT id FROM scheduler.runs_live") == []


async def test_a_run_that_succeeded_has_no_failed_step(world: Any, make: Any) -> None:
    run = await failed(world, make)
    again = await rerun(world, run)
    await world.finished(again)
    with pytest.raises(TobanError, match="it has SUCCEEDED; repeat the whole run") as caught:
        await rerun(world, again, from_failed_step=True)
    assert caught.value.code is ErrorCode.RESOURCE_INVALID_STATE


async def test_a_run_that_waited_for_its_next_step_goes_on_there(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(steps=[STEPS[0], EXTERNAL]))
    [run] = await world.start()
    await world.turn("assign")
    await world.report(world.key(run), make.outcome())
    await world.turn("assign")
    await world.cancel(run)
    assert (await read(world, run)).failed_step == 2
