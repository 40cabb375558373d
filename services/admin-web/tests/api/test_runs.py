"""Runs and events over the API: filters, starts that are safe to repeat, changes of many, output."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb


def last(api: Any) -> tuple[str, Any]:
    method, request, _ = api.further.calls[-1]
    return method, request


def test_runs_are_filtered_by_everything(api: Any) -> None:
    query = (
        "job=a&schedule=s&state=FAILED&state=TIMED_OUT&executor=host-1&origin=event&scope=account&scope_id=17"
        "&label=team%3Dops&label=k%3D%3D&since=2026-12-01T00:00:00Z&until=2026-12-02T00:00:00%2B01:00&ahead=true&limit=9&cursor=5"
        "&idempotency_key=order-7"
    )
    assert api.get(f"/runs?{query}").status_code == 200
    request = last(api)[1]
    assert (request.job, request.schedule, list(request.states)) == ("a", "s", ["FAILED", "TIMED_OUT"])
    assert (request.executor, request.origin, request.scope, request.scope_id) == ("host-1", "event", "account", "17")
    assert dict(request.labels) == {"team": "ops", "k": "="} and request.include_ahead
    assert (request.active_from.seconds, request.active_until.seconds) == (1796083200, 1796166000)
    assert (request.page.limit, request.page.cursor) == (9, "5")
    assert request.idempotency_key == "order-7"


def test_runs_are_counted_with_the_same_filters(api: Any) -> None:
    moment = {"seconds": 1796083200}
    group = pb.RunGroup(name="a", runs={"FAILED": 1}, intervals=[pb.RunInterval(at=moment, runs={"FAILED": 1})])
    api.further.answers["CountRuns"] = pb.RunCounts(since=moment, until=moment, groups=[group])
    answer = api.get("/runs/counts?state=FAILED&label=team%3Dops&since=2026-12-01T00:00:00Z&by=job&interval_seconds=60")
    request = last(api)[1]
    assert (list(request.filter.states), dict(request.filter.labels)) == (["FAILED"], {"team": "ops"})
    assert (request.filter.active_from.seconds, request.by, request.interval_seconds) == (1796083200, "job", 60)
    assert not request.filter.HasField("page") and api.get("/runs/counts?cursor=5").status_code == 400
    [counted] = answer.json["groups"]
    assert counted["runs"] == {"FAILED": 1} and counted["intervals"][0]["at"].startswith("2026-12-01T00:00:00")


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("state=GONE", "query.state.0"),
        ("limit=0", "query.limit"),
        ("limit=501", "query.limit"),
        ("limit=x", "query.limit"),
        ("limit=1&limit=2", "query.limit"),
        ("label=x", "query.label"),
        ("since=2026-12-01T00:00:00", "query.since"),
        ("jobs=a", "query.jobs"),
    ],
)
def test_a_wrong_filter_is_named(api: Any, query: str, where: str) -> None:
    response = api.get(f"/runs?{query}")
    assert response.status_code == 400 and response.json["code"] == "INVALID_ARGUMENT"
    assert [mistake["where"] for mistake in response.json["errors"]] == [where] and api.further.calls == []


def test_a_query_where_there_is_none_is_refused(api: Any) -> None:
    assert api.get("/runs/1?x=1").json["errors"] == [
        {"where": "query.x", "message": "there is no such field; there are none"}
    ]


def test_one_run_and_why_it_waits(api: Any) -> None:
    api.further.answers["GetRun"] = pb.Run(id=7, token=2**60, state="RUNNING")
    assert api.get("/runs/7").json["token"] == str(2**60)
    api.further.answers["ExplainRun"] = pb.RunExplanation(state="PENDING", reasons=["no executor"])
    assert api.get("/runs/7/why").json["reasons"] == ["no executor"]


def test_a_run_is_started_once_for_its_key(api: Any) -> None:
    response = api.post("/jobs/hello/runs", {"payload": {"n": 1}}, Idempotency_Key="order-7")
    assert (response.status_code, response.json) == (201, {"run_id": 7, "created": True})
    [run] = last(api)[1].runs
    assert (run.job, run.payload_json, run.idempotency_key) == ("hello", '{"n": 1}', "order-7")
    again = pb.StartRunsResponse(runs=[pb.StartedRun(run_id=7, created=False)])
    api.further.answers["StartRuns"] = again
    assert api.post("/jobs/hello/runs", Idempotency_Key="order-7").status_code == 200


def test_several_runs_are_started_together(api: Any) -> None:
    body = {"runs": [{"job": "a"}, {"job": "b", "idempotency_key": "own"}], "reason": "r"}
    response = api.post("/runs", body, Idempotency_Key="k")
    assert response.status_code == 201 and len(response.json["runs"]) == 2
    assert [run.idempotency_key for run in last(api)[1].runs] == ["k:0", "own"] and last(api)[1].reason == "r"


@pytest.mark.parametrize("key", ["", "a b", "ü", "x" * 181])
def test_a_key_that_is_none_is_refused(api: Any, key: str) -> None:
    assert api.post("/jobs/hello/runs", {}, Idempotency_Key=key).json["errors"][0]["where"] == "header Idempotency-Key"


def test_a_key_where_nothing_is_started_is_refused(api: Any) -> None:
    assert api.post("/runs/1/cancel", {}, Idempotency_Key="k").status_code == 400 and api.further.calls == []


def test_runs_are_canceled_repeated_and_noted(api: Any) -> None:
    api.further.answers["CancelRun"] = pb.CancelRunResponse(run=pb.Run(id=7, state="CANCELING"))
    assert api.post("/runs/7/cancel", {"mode": "kill", "reason": "r"}).json["run"]["state"] == "CANCELING"
    assert (last(api)[1].id, last(api)[1].mode, last(api)[1].reason) == (7, "kill", "r")
    api.further.answers["RerunRun"] = pb.RerunRunResponse(run_id=8, created=True)
    assert api.post("/runs/7/rerun", Idempotency_Key="k").status_code == 201
    assert last(api)[1].idempotency_key == "k" and last(api)[1].payload_json == ""
    assert api.post("/runs/7/notes", {"text": "seen"}).json == {} and last(api)[1].text == "seen"
    assert api.post("/runs/7/declare-lost", {"reason": "burnt"}).status_code == 200


def test_many_runs_are_changed_part_by_part(api: Any) -> None:
    skipped = pb.SkippedRuns(code="RESOURCE_INVALID_STATE", message="it has ended", runs=1, run_ids=[4])
    api.further.answers["CancelRuns"] = pb.ChangeRunsResponse(matched=3, changed=2, skipped=[skipped], next_cursor="9")
    body = {"filter": {"job": "a", "state": ["PENDING"], "cursor": "12"}, "dry_run": True, "reason": "r"}
    found = api.post("/runs/cancel", body).json
    assert (found["matched"], found["changed"], found["next_cursor"]) == (3, 2, "9")
    request = last(api)[1]
    assert (request.filter.job, list(request.filter.states), request.filter.page.cursor) == ("a", ["PENDING"], "12")
    assert request.dry_run and request.reason == "r"
    assert api.post("/runs/rerun", {"filter": {}, "latest_definition": True}, Idempotency_Key="op").status_code == 200
    assert last(api)[1].operation == "op" and last(api)[1].latest_definition


def test_events_are_emitted_once_for_their_key(api: Any) -> None:
    api.further.answers["EmitEvent"] = pb.EmitEventResponse(event_id=5)
    response = api.post("/events", {"event_type": "paid", "payload": {"id": 7}}, Idempotency_Key="o-7")
    assert response.status_code == 201 and response.json == {"event_id": 5, "duplicate": False}
    assert (last(api)[1].payload_json, last(api)[1].dedupe_key) == ('{"id": 7}', "o-7")
    api.further.answers["EmitEvent"] = pb.EmitEventResponse(event_id=5, duplicate=True)
    assert api.post("/events", {"event_type": "paid", "dedupe_key": "o-7"}).status_code == 200
    assert api.get("/events?unprocessed=true").status_code == 200 and last(api)[1].unprocessed


@pytest.mark.parametrize(
    ("data", "kind", "status"),
    [
        (b"{}", "text/plain", 415),
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"event_type": NaN}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"event_type": "a", "payload": ' + b'{"a":' * 300 + b"1" + b"}" * 301, "application/json", 400),
        (b'{"event_type": "a", "payload": "' + b"x" * (2 << 20) + b'"}', "application/json", 413),
        (b'{"event_type": "\\ud800"}', "application/json", 400),
        (b'{"event_type": 5}', "application/json", 400),
    ],
    ids=range(11),
)
def test_a_body_that_is_none_is_refused(api: Any, data: bytes, kind: str, status: int) -> None:
    headers = {"Authorization": "Bearer toban_pat_" + f"{'admin':0>32}"}
    response = api.web.client.post("/api/v1/events", data=data, content_type=kind, headers=headers)
    assert response.status_code == status and response.json["status"] == status and api.further.calls == []


def test_a_body_where_there_is_none_is_refused(api: Any) -> None:
    assert api.ask("DELETE", "/account/tokens/1", {"reason": "x"}).json["errors"][0]["where"] == "body"
    assert api.ask("DELETE", "/jobs/a", {"cancel_runs": True}).status_code == 400 and api.further.calls == []


def test_output_as_text_and_as_objects(api: Any) -> None:
    api.further.answers["GetRun"] = pb.Run(id=7)
    response = api.get("/runs/7/logs")
    assert (
        response.content_type == "text/plain; charset=utf-8" and response.get_data(as_text=True) == "line 1\nline 2\n"
    )
    response = api.get(
        "/runs/7/logs?format=jsonl&token=5&from_seq=1&to_seq=2&stream=stderr&stream=system&level=error&grep=x&regex=true"
    )
    request = api.web.cluster.logs.requests[-1]
    assert (request.run_id, request.token, request.from_seq, request.to_seq) == (7, 5, 1, 2)
    assert (list(request.streams), request.level, request.grep, request.regex) == ([2, 3], "error", "x", True)
    response = api.get("/runs/7/logs?format=jsonl")
    assert response.content_type == "application/x-ndjson"
    first, *_, last = map(json.loads, response.get_data(as_text=True).splitlines())
    assert last == {"end": True}
    assert (first["seq"], first["stream"], first["text"], first["partial"]) == (1, "stdout", "line 1", False)


def test_output_occupies_a_slot_until_it_ends(api: Any) -> None:
    slots = api.web.worker.context.stream_slots
    api.further.answers["GetRun"] = pb.Run(id=7)
    response = api.get("/runs/7/logs")
    assert slots.usage()[0] == 1
    response.close()
    assert slots.usage()[0] == 0
    held = [slots.acquire(f"person {n}", stream=False) for n in range(slots.size)]
    refused = api.get("/runs/7/logs")
    assert refused.status_code == 429 and refused.headers["Retry-After"] == "5"
    for release in held:
        release()


def test_output_of_a_run_that_the_person_may_not_see_is_not_read(api: Any) -> None:
    api.refuse("GetReadTicket", TobanError(ErrorCode.PERMISSION_DENIED, "no", detail={"user": "u-viewer"}))
    assert api.get("/runs/7/logs", role="viewer").status_code == 403 and api.web.cluster.logs.requests == []


def test_without_a_log_archiver_there_is_a_problem_and_a_time_to_wait(api: Any) -> None:
    api.further.answers["GetRun"] = pb.Run(id=7)
    api.web.cluster.stop_archiver()
    response = api.get("/runs/7/logs")
    assert response.status_code == 503 and response.headers["Retry-After"] == "5"
    assert api.web.worker.context.stream_slots.usage()[0] == 0


def test_output_is_read_with_its_ticket_alone(api: Any) -> None:
    assert api.get("/runs/7/logs").status_code == 200
    assert [method for method, _, _ in api.further.calls] == ["GetReadTicket"]


def test_a_run_without_output_has_an_empty_answer_and_one_that_does_not_exist_a_404(api: Any) -> None:
    api.web.cluster.logs.lines.clear()
    response = api.get("/runs/7/logs")
    assert (response.status_code, response.get_data()) == (200, b"")
    response.close()
    api.refuse("GetRun", TobanError(ErrorCode.RUN_NOT_FOUND, "there is no run 7"))
    response = api.get("/runs/7/logs")
    assert (response.status_code, response.json["code"]) == (404, "RUN_NOT_FOUND")
    assert api.web.worker.context.stream_slots.usage()[0] == 0
