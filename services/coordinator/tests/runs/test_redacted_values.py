"""Values that `logs.redact` names: readers get masks, whoever sends the masks back keeps the values, and jobs run with them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from toban_coordinator.app.definitions.delete_job import DeleteJob, DeleteRequest
from toban_coordinator.app.notifications.events import Events
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.runs.cancel import CancelRun
from toban_coordinator.app.runs.rerun import RerunRequest, RunRepeats
from toban_coordinator.app.runs.start_runs import StartRuns
from toban_coordinator.app.schedules.schedules import Schedules
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.redacted import MASK
from toban_proto.v1 import coordinator_pb2 as pb

SECRETS = ("k-env-1", "p-default-2", "p-nested-3", "p-schedule-4", "p-trigger-5", "p-event-6", "p-run-7")
REDACT = {"redact": ["API_KEY", "password"]}
DEFAULTS = {"password": "p-default-2", "db": {"user": "ann", "password": "p-nested-3"}, "to": "x"}


def documents(make: Any, **spec: Any) -> list[dict[str, Any]]:
    """A job that hides values, its schedule and its trigger."""
    job = make.job(**{"env": {"API_KEY": "k-env-1", "LANG": "C"}, "default_payload": DEFAULTS, "logs": REDACT, **spec})
    schedule = make.schedule(payload={"password": "p-schedule-4"})
    rule = {"event_type": "order.paid", "job": "hello", "payload": {"password": "p-trigger-5"}}
    trigger = {"apiVersion": "toban/v1", "kind": "EventTrigger", "metadata": {"name": "paid"}, "spec": rule}
    return [job, schedule, trigger]


@pytest.fixture
async def hidden(world: Any, make: Any) -> AsyncIterator[Any]:
    """A world with the three, an event and a run."""
    await world.executor()
    await world.apply(*documents(make))
    payload = json.dumps({"password": "p-event-6", "id": 1})
    await Events(pool=world.pool).emit("order.paid", payload_json=payload, dedupe_key="", actor="ann")
    [world.first] = await world.start(payload_json='{"password": "p-run-7"}')
    yield world


async def everything(world: Any) -> dict[str, str]:
    """What readers get, by method."""
    read = world.reader
    run = pb.GetRunRequest(id=world.first)
    paused = await Schedules(pool=world.pool).get("often")
    answers = {
        "ListJobs": await read.ListJobs(pb.ListJobsRequest(), None),
        "GetJob": await read.GetJob(pb.GetJobRequest(name="hello"), None),
        "ListSchedules": await read.ListSchedules(pb.ListSchedulesRequest(), None),
        "GetSchedule": await read.GetSchedule(pb.GetScheduleRequest(name="often"), None),
        "ListTriggers": await read.ListTriggers(pb.ListTriggersRequest(), None),
        "ListEvents": await read.ListEvents(pb.ListEventsRequest(), None),
        "ListRuns": await read.ListRuns(pb.ListRunsRequest(include_ahead=True), None),
        "GetRun": await read.GetRun(run, None),
        "WatchRun": await anext(read.WatchRun(run, None)),
        "ExplainRun": await read.ExplainRun(run, None),
        "schedule": paused["redact"],
    }
    return {name: str(answer) for name, answer in answers.items()}


def found(texts: dict[str, str]) -> dict[str, list[str]]:
    return {name: hits for name, text in texts.items() if (hits := [one for one in SECRETS if one in text])}


async def test_no_reader_gets_a_value(hidden: Any) -> None:
    await hidden.turn("events")
    texts = await everything(hidden)
    assert found(texts) == {}
    for name in (
        "ListJobs",
        "GetJob",
        "ListSchedules",
        "GetSchedule",
        "ListTriggers",
        "ListEvents",
        "ListRuns",
        "GetRun",
    ):
        assert MASK in texts[name], name
    job = await hidden.reader.GetJob(pb.GetJobRequest(name="hello"), None)
    spec = json.loads(job.spec_json)
    assert spec["env"] == {"API_KEY": MASK, "LANG": "C"}
    assert spec["default_payload"] == {"password": MASK, "db": {"user": "ann", "password": MASK}, "to": "x"}


async def test_the_audit_never_stores_a_value(hidden: Any, make: Any) -> None:
    await hidden.apply(*documents(make, priority=2))
    job, schedule, trigger = documents(make, env={"API_KEY": "p-default-2"})
    schedule["spec"]["payload"], trigger["spec"]["payload"] = {"password": "p-run-7"}, {"password": "p-event-6"}
    await hidden.apply(job, schedule, trigger)
    service = Schedules(pool=hidden.pool)
    await service.pause("often", reason="", actor="ann")
    await hidden.cancel(hidden.first)
    cancel = CancelRun(pool=hidden.pool, definitions=hidden.definitions)
    wanted = DeleteRequest(name="hello", with_schedules=True, with_triggers=True, cancel_runs=True)
    await DeleteJob(pool=hidden.pool, cancel=cancel).delete(wanted, "ann")
    rows = await hidden.sql("SELECT action, before, after FROM scheduler.admin_action_log")
    assert {"job.update", "schedule.update", "trigger.update", "job.delete", "schedule.delete", "trigger.delete"} <= {
        row["action"] for row in rows
    }
    assert found({row["action"]: json.dumps([row["before"], row["after"]]) for row in rows}) == {}


async def test_the_audit_of_a_schedule_that_is_given_up_stores_no_value(world: Any, make: Any) -> None:
    await world.apply(
        make.job(logs=REDACT), make.schedule(on_failure="remove", payload={"password": "p-schedule-4", "to": "x"})
    )
    await world.apply(make.job(logs=REDACT, payload_schema={"type": "object", "required": ["n"]}), force=True)
    await world.sql("UPDATE scheduler.schedules SET next_run_at = next_run_at - interval '60 s'")
    for _ in range(6):
        await world.sql("UPDATE scheduler.schedules SET fire_retry_at = NULL")
        await world.turn("fire")
    [row] = await world.sql("SELECT before FROM scheduler.admin_action_log WHERE action = 'schedule.delete'")
    assert row["before"]["spec"]["payload"] == {"password": MASK, "to": "x"}


async def test_a_name_that_is_added_hides_older_runs_and_the_former_value(world: Any, make: Any) -> None:
    await world.executor()
    shown = documents(make, logs={})
    await world.apply(*shown)
    [world.first] = await world.start(payload_json='{"password": "p-run-7"}')
    assert "p-run-7" in str(await world.reader.GetRun(pb.GetRunRequest(id=world.first), None))
    before = await world.sql("SELECT max(id) AS last FROM scheduler.admin_action_log")
    schedule = make.schedule(payload={"password": "p-event-6"})
    await world.apply(documents(make)[0], schedule)
    assert found(await everything(world)) == {}
    rows = await world.sql(
        "SELECT before, after FROM scheduler.admin_action_log WHERE id > %(last)s", last=before[0]["last"]
    )
    assert found({"audit": json.dumps([dict(row) for row in rows])}) == {}


async def test_a_name_that_is_removed_still_hides_the_runs_of_before(hidden: Any, make: Any) -> None:
    await hidden.apply(documents(make, logs={}, env={}, default_payload={})[0])
    assert "p-run-7" not in str(await hidden.reader.GetRun(pb.GetRunRequest(id=hidden.first), None))


async def stored(world: Any) -> dict[str, Any]:
    return {
        kind: (await world.sql(f"SELECT spec FROM scheduler.{table}"))[0]["spec"]
        for kind, table in (("job", "job_definitions"), ("schedule", "schedules"), ("trigger", "event_triggers"))
    }


async def shown_documents(world: Any) -> list[dict[str, Any]]:
    """The manifests that `job show -o yaml` and its like would print."""
    read = world.reader
    job = (await read.GetJob(pb.GetJobRequest(name="hello"), None)).spec_json
    schedule = (await read.GetSchedule(pb.GetScheduleRequest(name="often"), None)).spec_json
    trigger = (await read.ListTriggers(pb.ListTriggersRequest(name="paid"), None)).triggers[0].spec_json
    found = []
    for kind, text in (("Job", job), ("Schedule", schedule), ("EventTrigger", trigger)):
        spec = json.loads(text)
        found.append({"apiVersion": "toban/v1", "kind": kind, "metadata": {"name": spec.pop("name")}, "spec": spec})
    return found


async def test_what_was_shown_is_applied_without_a_change(hidden: Any) -> None:
    before = await stored(hidden)
    assert MASK not in json.dumps(before)
    assert [action for _, action, _ in await hidden.apply(*await shown_documents(hidden))] == ["unchanged"] * 3
    assert await stored(hidden) == before


async def test_an_edit_of_what_was_shown_keeps_the_values(hidden: Any) -> None:
    before = await stored(hidden)
    job, schedule, trigger = await shown_documents(hidden)
    job["spec"]["priority"], schedule["spec"]["interval_seconds"], trigger["spec"]["payload"]["more"] = 7, 20, 1
    assert [action for _, action, _ in await hidden.apply(job, schedule, trigger)] == ["updated"] * 3
    after = await stored(hidden)
    assert (after["job"]["env"], after["job"]["default_payload"]) == (
        before["job"]["env"],
        before["job"]["default_payload"],
    )
    assert after["schedule"]["payload"] == {"password": "p-schedule-4"}
    assert after["trigger"]["payload"] == {"password": "p-trigger-5", "more": 1}


def _unnamed(job: dict[str, Any], *_: Any) -> str:
    job["spec"]["logs"] = {"redact": ["password"]}
    return "spec.env.API_KEY"


def _other_name(job: dict[str, Any], *_: Any) -> str:
    job["metadata"]["name"] = "copy"
    return "spec.env.API_KEY"


def _moved(job: dict[str, Any], *_: Any) -> str:
    job["spec"]["default_payload"]["db2"] = job["spec"]["default_payload"].pop("db")
    return "spec.default_payload.db2.password"


def _renamed_schedule(_job: Any, schedule: dict[str, Any], *_: Any) -> str:
    schedule["metadata"]["name"] = "copy"
    return "spec.payload.password"


def _other_job(_job: Any, _schedule: Any, trigger: dict[str, Any]) -> str:
    trigger["spec"]["job"] = "other"
    return "spec.payload.password"


@pytest.mark.parametrize("spoil", [_unnamed, _other_name, _moved, _renamed_schedule, _other_job])
async def test_a_mask_without_a_value_is_refused(hidden: Any, make: Any, spoil: Callable[..., str]) -> None:
    await hidden.apply(make.job("other", logs=REDACT))
    before, (job, schedule, trigger) = await stored(hidden), await shown_documents(hidden)
    path = spoil(job, schedule, trigger)
    with pytest.raises(TobanError) as refused:
        await hidden.apply(job, schedule, trigger)
    assert refused.value.code is ErrorCode.MANIFEST_INVALID
    assert path in refused.value.message and "write the value" in refused.value.message
    assert found({"error": f"{refused.value.message} {refused.value.detail}"}) == {}
    assert await stored(hidden) == before


async def payload_of(world: Any, run: int) -> dict[str, Any]:
    return dict((await world.run(run))["payload"])


async def test_a_run_keeps_the_default_behind_a_mask(hidden: Any) -> None:
    [run] = await hidden.start(payload_json=json.dumps({"password": MASK, "db": {"user": "ann", "password": MASK}}))
    assert await payload_of(hidden, run) == DEFAULTS
    [again] = await hidden.start_again(payload_json=json.dumps({"password": MASK, "to": MASK}))
    assert await payload_of(hidden, again) == {**DEFAULTS, "to": MASK}
    with pytest.raises(
        TobanError, match=r"payload\.db\.api\.password: \*\*\* stands for a value that is not shown"
    ) as refused:
        await hidden.start(payload_json=json.dumps({"db": {"api": {"password": MASK}}}))
    assert refused.value.code is ErrorCode.PAYLOAD_INVALID


@pytest.mark.parametrize("replace", [False, True])
async def test_a_rerun_keeps_what_its_form_could_not_show(hidden: Any, replace: bool) -> None:
    start = StartRuns(
        pool=hidden.pool, definitions=hidden.definitions, payloads=PayloadValidator(), fast_path=hidden.fast_path
    )
    await hidden.finished(hidden.first)
    shown = json.loads((await hidden.reader.GetRun(pb.GetRunRequest(id=hidden.first), None)).payload_json)
    assert shown["password"] == MASK
    wanted = RerunRequest(run_id=hidden.first, payload_json=json.dumps({**shown, "to": "y"}), replace_payload=replace)
    again = await RunRepeats(pool=hidden.pool, start=start).rerun(wanted, "ann")
    assert await payload_of(hidden, again.run_id) == {**DEFAULTS, "password": "p-run-7", "to": "y"}


async def test_an_error_of_the_schema_names_no_value(hidden: Any, make: Any) -> None:
    schema = {"properties": {"password": {"type": "string", "maxLength": 3}}}
    document = documents(make, payload_schema=schema, default_payload={})[0]
    with pytest.raises(TobanError, match=r"would fail: payload\.password: the value is longer than 3") as kept:
        await hidden.apply(document)
    assert found({"error": f"{kept.value.message} {kept.value.detail}"}) == {}
    await hidden.apply(document, force=True)
    with pytest.raises(TobanError) as refused:
        await hidden.start(payload_json='{"password": "p-run-7"}')
    assert found({"error": f"{refused.value.message} {refused.value.detail}"}) == {}
    assert refused.value.message.startswith("payload.password: the value is longer than 3 characters")


async def test_jobs_run_with_the_values(hidden: Any) -> None:
    await hidden.turn("assign")
    [order] = [order for _, order in hidden.orders.starts if order.key.run_id == hidden.first]
    text = str(order)
    assert "k-env-1" in text and "p-run-7" in text and "p-nested-3" in text
