"""Ends of runs start other jobs: once, with what the run has made, in its scope, and never for ever."""

import json
from typing import Any

import pytest

from toban_coordinator.app.definitions.delete_job import DeleteJob, DeleteRequest
from toban_coordinator.app.runs.cancel import CancelRun
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import Outcome
from toban_observability import metrics
from toban_proto.v1 import coordinator_pb2 as pb


def chain(name: str = "after", job: str = "load", *, after: str = "extract", **spec: Any) -> dict[str, Any]:
    states = {"states": spec.pop("states")} if "states" in spec else {}
    which = {"labels": spec.pop("labels")} if "labels" in spec else {"job": after}
    body = {"job": job, "on_run_end": {**which, **states}, **spec}
    return {"apiVersion": "toban/v1", "kind": "EventTrigger", "metadata": {"name": name}, "spec": body}


async def ran(
    world: Any, make: Any, kind: str = "SUCCEEDED", result: Any = None, job: str = "extract", **fields: Any
) -> int:
    """A run of a job that has ended so."""
    [run] = await world.start(job, **fields)
    await ended(world, make, run, kind, result)
    return int(run)


async def ended(world: Any, make: Any, run: int, kind: str = "SUCCEEDED", result: Any = None) -> None:
    await world.turn("assign")
    given = {"result_json": json.dumps(result)} if result is not None else {}
    given |= {"exit_code": 3} if kind == "FAILED" else {}
    outcome: Outcome = make.outcome(kind, **given)
    await world.report(world.key(run), outcome)


async def chained(world: Any) -> list[dict[str, Any]]:
    await world.turn("events")
    return await world.sql("SELECT * FROM scheduler.job_runs WHERE origin = 'event' ORDER BY id")


@pytest.fixture
async def jobs(world: Any, make: Any) -> None:
    await world.executor(slots=8)
    await world.apply(make.job("extract"), make.job("load"), make.job("report"))


@pytest.mark.seed(151)
@pytest.mark.usefixtures("jobs")
async def test_the_end_of_a_run_starts_another_job_with_its_result(world: Any, make: Any) -> None:
    await world.apply(
        chain(
            payload={"rows": "{{ result.rows }}", "day": "{{ payload.day }}", "from": "{{ run.job }} #{{ run.id }}"},
            filter={"result.rows": {"gt": 0}},
        )
    )
    run = await ran(world, make, result={"rows": 7}, payload_json='{"day": "mon"}', scope="account", scope_id="17")
    [started] = await chained(world)
    assert started["payload"] == {"rows": 7, "day": "mon", "from": f"extract #{run}"}
    assert (started["job_name"], started["trigger_name"]) == ("load", "after")
    assert (started["after_run"], started["chain_depth"]) == (run, 1)
    assert (started["scope"], started["scope_id"]) == ("account", "17")
    shown = await world.reader.GetRun(pb.GetRunRequest(id=started["id"]), None)
    assert (shown.after_run, shown.chain_depth) == (run, 1)
    assert shown.events[0].message == f"by the end of run {run} and trigger after"
    await ran(world, make, result={"rows": 0})
    assert [one["id"] for one in await chained(world)] == [started["id"]]


@pytest.mark.usefixtures("jobs")
async def test_only_ends_that_a_trigger_waits_for_are_events(world: Any, make: Any) -> None:
    await ran(world, make)
    await world.apply(chain(states=["FAILED", "TIMED_OUT"]), chain("off", "report", enabled=False))
    await ran(world, make)
    await ran(world, make, "FAILED", job="report")
    assert await world.sql("SELECT 1 FROM scheduler.events") == []
    failed = await ran(world, make, "FAILED")
    late = await ran(world, make, "TIMED_OUT")
    assert [run["after_run"] for run in await chained(world)] == [failed, late]


@pytest.mark.usefixtures("jobs")
async def test_late_is_a_reason_and_not_a_state(world: Any, make: Any) -> None:
    await world.apply(
        make.job("extract", skip_late_after_seconds=5),
        chain("late", states=["LATE"]),
        chain("skip", "report", states=["SKIPPED"]),
    )
    await world.sql("UPDATE scheduler.executors SET state = 'draining'")
    [run] = await world.start("extract")
    await world.later(60)
    await world.turn("reap")
    assert await world.state(run) == "SKIPPED"
    assert sorted(one["trigger_name"] for one in await chained(world)) == ["late", "skip"]
    [waiting] = await world.start("extract")
    await world.cancel(waiting)
    assert len(await chained(world)) == 2


@pytest.mark.usefixtures("jobs")
async def test_by_labels_but_never_its_own_job(world: Any, make: Any) -> None:
    marked = [make.job(name) | {"metadata": {"name": name, "labels": {"team": "etl"}}} for name in ("extract", "load")]
    await world.apply(*marked, chain(labels={"team": "etl"}))
    run = await ran(world, make)
    await ran(world, make, job="report")
    [started] = await chained(world)
    assert (started["after_run"], started["job_name"]) == (run, "load")
    await ended(world, make, started["id"])
    assert await chained(world) == [await world.run(started["id"])]


@pytest.mark.usefixtures("jobs")
async def test_a_loop_ends_at_the_limit_and_says_so(world: Any, make: Any) -> None:
    world.settings.set(max_chain_depth=2)
    await world.apply(chain("there"), chain("back", "extract", after="load"))
    before = sum(value for _, value in metrics.samples("toban_chains_cut_total"))
    first = await ran(world, make)
    for _ in range(3):
        await world.turn("events")
        live = await world.sql("SELECT id FROM scheduler.runs_live ORDER BY id")
        for row in live:
            await ended(world, make, row["id"])
    await world.turn("events")
    found = await world.sql("SELECT id, chain_depth FROM scheduler.job_runs ORDER BY id")
    assert [row["chain_depth"] for row in found] == [0, 1, 2]
    assert await world.sql("SELECT 1 FROM scheduler.runs_live") == []
    last = found[-1]["id"]
    [event] = [
        one
        for one in (await world.reader.GetRun(pb.GetRunRequest(id=last), None)).events
        if one.type == "trigger_failed"
    ]
    assert "number 3 of a chain of runs" in event.message and "max_chain_depth" in event.message
    listed = (await world.reader.ListEvents(pb.ListEventsRequest(event_type="@run-end"), None)).events
    assert (listed[0].outcome, listed[0].payload_json) == ("failed", f'{{"run": {last}}}')
    assert sum(value for _, value in metrics.samples("toban_chains_cut_total")) == before + 1
    assert first == found[0]["id"]


@pytest.mark.usefixtures("jobs")
async def test_a_payload_that_does_not_fit_blocks_no_run(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(chain(payload={"rows": "{{ result.rows }}"}))
    run = await ran(world, make, result={"lines": 1})
    assert await chained(world) == []
    assert "the run that ended has no result.rows" in await inbox.last_error("after")
    for _ in range(6):
        await inbox.retry_now()
        await world.turn("events")
    assert await world.sql("SELECT 1 FROM scheduler.events") == []
    assert "trigger_failed" in await world.events(run)


@pytest.mark.usefixtures("jobs")
async def test_a_write_that_is_repeated_starts_one_run(world: Any, make: Any) -> None:
    """A leader whose commit has an unknown outcome, and the next leader, process the same end again."""
    await world.apply(chain())
    await ran(world, make)
    [due] = await world.sql("SELECT id, payload FROM scheduler.events")
    await chained(world)
    await world.sql(
        "INSERT INTO scheduler.events (id, event_type, payload, created_by) OVERRIDING SYSTEM VALUE VALUES (%(id)s, '@run-end', %(p)s, 'run')",
        id=due["id"],
        p=json.dumps(due["payload"]),
    )
    assert len(await chained(world)) == 1


@pytest.mark.usefixtures("jobs")
async def test_a_new_leader_goes_on_with_ends_that_wait(world: Any, make: Any, new_term: Any) -> None:
    await world.apply(chain())
    runs = [await ran(world, make) for _ in range(3)]
    world.take(await new_term(2))
    assert [run["after_run"] for run in await chained(world)] == runs


@pytest.mark.usefixtures("jobs")
async def test_a_run_whose_history_is_gone_is_a_kept_failure(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(chain(labels={"team": "etl"}))
    await world.sql("INSERT INTO scheduler.events (event_type, payload) VALUES ('@run-end', '{\"run\": 999999}')")
    assert await chained(world) == []
    [(outcome, started)] = (await inbox.outcomes()).values()
    assert (outcome, started) == ("failed", [])
    assert "its retention has passed" in await inbox.last_error("after")


@pytest.mark.usefixtures("jobs")
async def test_no_application_emits_ends_of_runs(world: Any, inbox: Any) -> None:
    with pytest.raises(TobanError) as caught:
        await inbox.emit("@run-end", run=1)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(Exception, match="not a type of event"):
        await world.sql("SELECT scheduler.emit_event('@run-end', '{}')")


@pytest.mark.usefixtures("jobs")
async def test_what_is_refused_when_it_is_applied(world: Any, make: Any) -> None:
    for given, words in (
        (chain(job="extract"), "spec.on_run_end.job: is the job that the trigger starts"),
        (chain(after="extrakt"), "spec.on_run_end.job: there is no job 'extrakt'; did you mean 'extract'?"),
    ):
        with pytest.raises(TobanError) as caught:
            await world.apply(given)
        assert words in caught.value.message
    await world.apply(make.job("new"), chain(after="new"))


@pytest.mark.usefixtures("jobs")
async def test_a_job_whose_ends_a_trigger_waits_for_is_in_use(world: Any, make: Any) -> None:
    await world.apply(chain())
    service = DeleteJob(pool=world.pool, cancel=CancelRun(pool=world.pool, definitions=world.definitions))
    with pytest.raises(TobanError, match="trigger after"):
        await service.delete(DeleteRequest(name="extract"), "user ada")
    await service.delete(DeleteRequest(name="extract", with_triggers=True), "user ada")
    assert await world.sql("SELECT 1 FROM scheduler.event_triggers") == []
