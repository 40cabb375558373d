"""Definitions over the API: what is asked of coordinators, versions as ETags, and errors with their places."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb

JOB = {"spec": {"steps": [{"argv": ["/bin/true"]}]}}


def last(api: Any) -> tuple[str, Any]:
    method, request, _ = api.further.calls[-1]
    return method, request


def test_lists_are_read_page_by_page(api: Any) -> None:
    api.further.answers["ListJobs"] = pb.ListJobsResponse(jobs=[pb.Job(name="a")], next_cursor="a")
    found = api.get("/jobs?limit=1&cursor=0").json
    assert (found["next_cursor"], [job["name"] for job in found["jobs"]]) == ("a", ["a"])
    assert last(api)[1].page.limit == 1 and last(api)[1].page.cursor == "0"
    assert api.get("/schedules?job=hello").status_code == 200 and last(api)[1].job == "hello"
    assert api.get("/triggers?event_type=paid").status_code == 200 and last(api)[1].event_type == "paid"


def test_a_job_has_its_version_as_its_etag(api: Any) -> None:
    api.further.answers["GetJob"] = pb.Job(name="hello", version=3, spec_json='{"a": 1}')
    response = api.get("/jobs/hello")
    assert response.headers["ETag"] == '"3"' and response.json["spec"] == {"a": 1}
    assert response.headers["Cache-Control"] == "no-store"
    unchanged = api.get("/jobs/hello", If_None_Match='"2", W/"3"')
    assert unchanged.status_code == 304 and unchanged.get_data() == b""
    assert api.get("/jobs/hello", If_None_Match='"2"').status_code == 200


def test_slots_and_fires_of_a_schedule(api: Any) -> None:
    assert api.get("/schedules/nightly/next?count=7&after=2026-12-01T00:00:00Z").status_code == 200
    method, request = last(api)
    assert (method, request.name, request.count, request.after.seconds) == ("NextSlots", "nightly", 7, 1796083200)
    assert api.get("/schedules/nightly/fires?limit=2").status_code == 200
    assert (last(api)[1].schedule, last(api)[1].page.limit) == ("nightly", 2)


def test_one_trigger(api: Any) -> None:
    api.further.answers["ListTriggers"] = pb.ListTriggersResponse(triggers=[pb.Trigger(name="paid", version=2)])
    assert api.get("/triggers/paid").headers["ETag"] == '"2"' and last(api)[1].name == "paid"
    api.further.answers["ListTriggers"] = pb.ListTriggersResponse()
    assert api.get("/triggers/hidden").json["code"] == "TRIGGER_NOT_FOUND"


def test_a_manifest_is_put_at_its_name(api: Any) -> None:
    response = api.put("/jobs/hello", JOB)
    assert response.status_code == 201 and response.headers["ETag"] == '"1"'
    [manifest] = last(api)[1].manifests
    wanted = {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "hello"}, **JOB}
    assert json.loads(manifest.json) == wanted and not manifest.HasField("expect_version")
    api.further.answers["Apply"] = pb.ApplyResponse(applied=[pb.Applied(action="updated", version=4)])
    assert api.put("/schedules/nightly?dry_run=true&reason=quiet", JOB).status_code == 200
    assert last(api)[1].reason == "quiet"
    assert json.loads(last(api)[1].manifests[0].json)["kind"] == "Schedule" and last(api)[1].dry_run
    assert api.put("/triggers/paid", JOB).status_code == 200
    assert json.loads(last(api)[1].manifests[0].json)["kind"] == "EventTrigger"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({**JOB, "kind": "Schedule"}, "body.kind"),
        ({**JOB, "metadata": {"name": "other"}}, "body.metadata.name"),
        ({}, "body.spec"),
        ({**JOB, "x": 1}, "body.x"),
    ],
)
def test_a_manifest_of_something_else_is_refused(api: Any, body: Any, where: str) -> None:
    response = api.put("/jobs/hello", body)
    assert response.status_code == 400 and response.json["errors"][0]["where"] == where
    assert response.json["detail"].startswith(f"{where}: ") and api.further.calls == []


@pytest.mark.parametrize(
    ("headers", "expected"),
    [({"If_Match": '"3"'}, 3), ({"If_Match": 'W/"3"'}, 3), ({"If_None_Match": "*"}, 0), ({"If_Match": "*"}, None)],
)
def test_a_condition_is_the_expected_version(api: Any, headers: dict[str, str], expected: int | None) -> None:
    assert api.put("/jobs/hello", JOB, **headers).status_code == 201
    manifest = last(api)[1].manifests[0]
    assert (manifest.expect_version if manifest.HasField("expect_version") else None) == expected


@pytest.mark.parametrize(
    "headers",
    [{"If_Match": "3"}, {"If_Match": ""}, {"If_None_Match": '"3"'}, {"If_Match": '"1", "2"'}],
)
def test_another_condition_is_refused(api: Any, headers: dict[str, str]) -> None:
    response = api.put("/jobs/hello", JOB, **headers)
    assert response.status_code == 400 and response.json["errors"][0]["where"].startswith("header If-")


def test_a_condition_that_does_not_hold_is_412(api: Any) -> None:
    api.refuse("Apply", TobanError(ErrorCode.CONFLICT, "job hello has version 4, not 3"))
    assert api.put("/jobs/hello", JOB).status_code == 409
    response = api.put("/jobs/hello", JOB, If_Match='"3"')
    assert (response.status_code, response.json["status"], response.json["code"]) == (412, 412, "CONFLICT")


def test_several_manifests_are_applied_together(api: Any) -> None:
    document = {"kind": "Job", "metadata": {"name": "a"}, **JOB}
    response = api.post("/apply", {"manifests": [document, document], "dry_run": True, "force": True, "reason": "both"})
    assert response.status_code == 200 and len(response.json["applied"]) == 2
    request = last(api)[1]
    assert (
        request.dry_run
        and request.force
        and request.reason == "both"
        and [one.source for one in request.manifests] == ["manifests.0", "manifests.1"]
    )


def test_a_schema_that_breaks_schedules_is_applied_with_force_only(api: Any) -> None:
    assert api.put("/jobs/hello", JOB).status_code == 201 and not last(api)[1].force
    assert api.put("/jobs/hello?force=true", JOB).status_code == 201 and last(api)[1].force


@pytest.mark.parametrize("depth", [300, 20_000])
def test_a_body_that_is_nested_too_deeply_says_so(api: Any, depth: int) -> None:
    response = api.post("/apply", b'{"a":' * depth + b"1" + b"}" * depth, Content_Type="application/json")
    assert response.status_code == 400 and "body: is nested more than" in response.json["detail"]


@pytest.mark.parametrize(
    ("path", "place"), [("/jobs/a%00b", "path"), ("/runs?job=%00", "query"), ("/runs?%00=a", "query")]
)
def test_a_nul_is_refused_with_its_place(api: Any, path: str, place: str) -> None:
    response = api.get(path)
    assert (response.status_code, response.content_type) == (400, "application/problem+json")
    assert response.json["detail"].startswith(f"{place}: has a NUL character (%00)")


def test_choices_are_listed_without_the_empty_one(api: Any) -> None:
    detail = api.get("/runs?origin=x").json["detail"]
    assert "'slot', 'demand', 'event' or 'rerun'" in detail and "''" not in detail


def test_what_goes_with_a_job_is_named(api: Any) -> None:
    api.further.answers["DeleteJob"] = pb.DeleteJobResponse(schedules=["s"], canceled_runs=2)
    response = api.ask("DELETE", "/jobs/hello?with_schedules=true&reason=old")
    assert response.json == {"schedules": ["s"], "triggers": [], "canceled_runs": 2}
    request = last(api)[1]
    assert (request.name, request.with_schedules, request.cancel_runs, request.reason) == ("hello", True, False, "old")


def test_jobs_are_disabled_with_a_reason_and_enabled_as_they_were_seen(api: Any) -> None:
    assert api.post("/jobs/hello/disable", {"reason": "a move"}).status_code == 200
    assert last(api)[0] == "DisableJob" and (last(api)[1].name, last(api)[1].reason) == ("hello", "a move")
    assert api.post("/jobs/hello/enable").status_code == 200
    assert last(api)[0] == "EnableJob" and not last(api)[1].HasField("disabled_at")
    seen = "2026-11-23T19:00:00.123456Z"
    assert api.post("/jobs/hello/enable", {"reason": "over", "disabled_at": seen}).status_code == 200
    assert last(api)[1].disabled_at.ToJsonString() == seen and last(api)[1].reason == "over"
    assert api.post("/jobs/hello/enable", {"disabled_at": "2026-11-23T19:00:00"}).status_code == 400


def test_versions_and_days_of_a_job(api: Any) -> None:
    api.further.answers |= {
        "ListJobVersions": pb.ListJobVersionsResponse(versions=[pb.JobVersion(version=2, spec_json='{"a": 1}')]),
        "GetJobDays": pb.JobDays(days=[pb.JobDay(day="2026-11-23", failed=2)]),
    }
    response = api.ask("GET", "/jobs/hello/versions?limit=1&cursor=3")
    assert response.json["versions"] == [{"version": 2, "spec": {"a": 1}, "created_at": None, "created_by": ""}]
    assert (last(api)[1].name, last(api)[1].page.limit, last(api)[1].page.cursor) == ("hello", 1, "3")
    response = api.ask("GET", "/jobs/hello/days?days=7")
    assert response.json == {"days": [{"day": "2026-11-23", "succeeded": 0, "failed": 2, "other": 0}]}
    assert (last(api)[1].name, last(api)[1].days) == ("hello", 7)
    assert api.ask("GET", "/jobs/hello/days?days=367").status_code == 400


def test_the_coming_load(api: Any) -> None:
    minute = pb.CrowdedMinute(
        slots=30, schedules=2, named=[pb.LoadSchedule(schedule="a", job="hello", slots=15, version=2)]
    )
    api.further.answers["GetComingLoad"] = pb.ComingLoad(crowded=[minute], schedules=2)
    response = api.ask("GET", "/load?crowded=5&names=1&minute=2026-11-29T18:00:00Z")
    [found] = response.json["crowded"]
    assert found["named"] == [{"schedule": "a", "job": "hello", "slots": 15, "version": 2}] and found["slots"] == 30
    request = last(api)[1]
    assert (request.crowded, request.names, request.minute.seconds) == (5, 1, 1795975200)
    assert api.ask("GET", "/load?names=201").status_code == 400


def test_schedules_are_paused_with_a_reason_and_resumed(api: Any) -> None:
    assert api.post("/schedules/nightly/pause", {"reason": "holiday"}).status_code == 200
    assert last(api)[0] == "PauseSchedule" and last(api)[1].reason == "holiday"
    assert api.post("/schedules/nightly/pause").status_code == 200
    assert api.post("/schedules/nightly/resume").status_code == 200 and last(api)[0] == "ResumeSchedule"
    assert api.post("/schedules/nightly/resume", {"reason": "over"}).status_code == 200
    assert last(api)[1].reason == "over"
    assert api.ask("DELETE", "/schedules/nightly").json == {"withdrawn_runs": 0}
    assert api.ask("DELETE", "/triggers/paid").json == {}
