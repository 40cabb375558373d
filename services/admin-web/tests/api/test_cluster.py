"""Executors, settings, limits, secrets and accounts over the API: what is asked of coordinators; errors as problems."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from toban_admin_web.decide.problems import TITLES, status_of
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb

EPOCH = str((1 << 51) | (1 << 27))
# Method and path, body, then the method that is asked and fields of its request.
CALLS: list[tuple[str, str, Any, str, dict[str, Any]]] = [
    ("GET", "/executors?include_off=true", None, "ListExecutors", {"include_off": True}),
    ("POST", "/executors/3/drain", {"reason": "r"}, "DrainExecutor", {"worker_id": 3, "reason": "r"}),
    ("POST", "/executors/3/drain", {"epoch": EPOCH}, "DrainExecutor", {"epoch": int(EPOCH)}),
    ("POST", "/executors/3/undrain", None, "UndrainExecutor", {"worker_id": 3, "epoch": 0}),
    ("POST", "/executors/3/undrain", {"epoch": EPOCH}, "UndrainExecutor", {"epoch": int(EPOCH)}),
    ("POST", "/executors/3/detach", {"epoch": EPOCH}, "DetachExecutor", {"epoch": int(EPOCH)}),
    ("POST", "/executors/3/detach", {"mode": "stop"}, "DetachExecutor", {"worker_id": 3, "mode": "stop"}),
    ("POST", "/executors/3/detach", None, "DetachExecutor", {"mode": "let_finish"}),
    ("GET", "/cluster", None, "GetCluster", {}),
    ("GET", "/archive", None, "GetArchive", {}),
    ("POST", "/archive/run", {"reason": "r"}, "RunArchive", {"reason": "r"}),
    ("POST", "/archive/verify", {"log_day": "2026-11-20"}, "VerifyArchive", {"log_day": "2026-11-20", "cursor": ""}),
    ("GET", "/overview", None, "GetOverview", {}),
    ("GET", "/cluster/diagnosis", None, "Diagnose", {}),
    ("POST", "/cluster/demote", {"epoch": EPOCH, "reason": "r"}, "DemoteLeader", {"epoch": int(EPOCH), "reason": "r"}),
    ("GET", "/settings", None, "ListSettings", {}),
    ("PUT", "/settings/a", {"value": [1, "x"]}, "UpdateSetting", {"name": "a", "value_json": '[1, "x"]'}),
    (
        "GET",
        "/audit?limit=3&cursor=9&actor=ada&oldest_first=true",
        None,
        "ListAudit",
        {"actor": "ada", "oldest_first": True},
    ),
    ("GET", "/audit/verify?known_head=4:ab", None, "VerifyAudit", {"known_head": "4:ab", "cursor": ""}),
    ("GET", "/executor-groups", None, "ListExecutorGroups", {}),
    (
        "PUT",
        "/executor-groups/pci",
        {"labels": {"pool": "pci"}, "claims": ["zone"], "instances": ["i1"], "job_labels": {"team": "pay"}},
        "SetExecutorGroup",
        {
            "name": "pci",
            "labels": {"pool": "pci"},
            "claims": ["zone"],
            "instances": ["i1"],
            "job_labels": {"team": "pay"},
            "no_job_labels": False,
            "create": False,
            "version": 0,
        },
    ),
    ("PUT", "/executor-groups/pci", {}, "SetExecutorGroup", {"job_labels": {}, "no_job_labels": False}),
    (
        "PUT",
        "/executor-groups/pci",
        {"job_labels": {}},
        "SetExecutorGroup",
        {"job_labels": {}, "no_job_labels": True},
    ),
    ("DELETE", "/executor-groups/pci?reason=r", None, "RemoveExecutorGroup", {"name": "pci", "reason": "r"}),
    ("GET", "/limits", None, "ListLimits", {}),
    ("GET", "/limits/pool:licences", None, "GetLimit", {"name": "pool:licences"}),
    ("PUT", "/limits/scope:account/17", {"limit": 3}, "SetLimit", {"name": "scope:account/17", "limit": 3}),
    ("PUT", "/limits/scope:account%2F17", {"limit": -1}, "SetLimit", {"name": "scope:account/17", "limit": -1}),
    ("DELETE", "/limits/job:a?reason=r", None, "SetLimit", {"name": "job:a", "reset": True, "reason": "r"}),
    ("POST", "/limits/scope:a/1/breaker", {"open": False}, "SetBreaker", {"name": "scope:a/1", "open": False}),
    ("POST", "/limits/job:a/signal", {"level": "soft"}, "SignalLimit", {"level": "soft", "ttl_seconds": 60}),
    ("GET", "/secrets", None, "ListSecrets", {}),
    ("PUT", "/secrets/s", {"value": "ünter", "jobs": ["a"]}, "SetSecret", {"name": "s", "value": "ünter".encode()}),
    ("DELETE", "/secrets/s?force=true", None, "RemoveSecret", {"name": "s", "force": True}),
    ("POST", "/secrets/rotate", None, "RotateSecrets", {}),
    ("GET", "/users?limit=2", None, "ListUsers", {}),
    ("POST", "/users", {"name": "bob", "password": "p"}, "AddUser", {"name": "bob", "password": "p"}),
    ("PATCH", "/users/bob", {"enabled": False}, "UpdateUser", {"name": "bob", "enabled": False}),
    ("DELETE", "/users/bob?reason=left", None, "DeleteUser", {"name": "bob", "reason": "left"}),
    ("POST", "/users/bob/end-sessions", None, "EndSessions", {"user": "bob"}),
    ("PUT", "/users/bob/identity", {"subject": "s1"}, "LinkUser", {"name": "bob", "subject": "s1"}),
    ("DELETE", "/users/bob/identity?issuer=https://a", None, "UnlinkUser", {"name": "bob", "issuer": "https://a"}),
    ("GET", "/users/bob/may?action=run&job=a", None, "May", {"user": "bob", "action": "run", "job": "a"}),
    ("GET", "/groups", None, "ListGroups", {}),
    ("PUT", "/groups/ops", None, "UpdateGroup", {"name": "ops", "change": "add"}),
    ("DELETE", "/groups/ops", None, "UpdateGroup", {"name": "ops", "change": "delete"}),
    ("PUT", "/groups/ops/members/bob", None, "UpdateGroup", {"name": "ops", "user": "bob", "change": "join"}),
    ("DELETE", "/groups/ops/members/bob", None, "UpdateGroup", {"user": "bob", "change": "leave"}),
    ("GET", "/rules?user=bob", None, "ListRules", {"user": "bob"}),
    ("DELETE", "/rules/4", None, "RemoveRule", {"id": 4}),
    ("GET", "/tokens?user=bob", None, "ListTokens", {"user": "bob"}),
    ("DELETE", "/tokens/4?reason=lost", None, "RevokeToken", {"id": 4, "reason": "lost"}),
    (
        "POST",
        "/account/password",
        {"current": "a", "password": "b"},
        "ChangeOwnPassword",
        {"current": "a", "password": "b"},
    ),
    ("GET", "/account/sessions", None, "ListOwnSessions", {}),
    ("DELETE", "/account/sessions/4", None, "EndOwnSession", {"id": 4}),
    ("GET", "/account/tokens", None, "ListOwnTokens", {}),
    ("POST", "/account/tokens", {"role": "viewer", "days": 3}, "CreateOwnToken", {"role": "viewer", "days": 3}),
    ("DELETE", "/account/tokens/4?reason=lost", None, "RevokeOwnToken", {"id": 4, "reason": "lost"}),
]


@pytest.mark.parametrize(("verb", "path", "body", "method", "fields"), CALLS, ids=lambda one: str(one)[:40])
def test_a_route_is_one_call(api: Any, verb: str, path: str, body: Any, method: str, fields: dict[str, Any]) -> None:
    response = api.ask(verb, path, body)
    assert response.status_code in (200, 201), response.get_data(as_text=True)
    [(asked, request, _)] = api.further.calls
    assert asked == method and {name: getattr(request, name) for name in fields} == fields


@pytest.mark.usefixtures("production_waits")
@pytest.mark.parametrize(
    ("verb", "path", "method", "least", "most"),
    [
        ("GET", "/audit", "ListAudit", 15, 25),
        ("GET", "/audit/verify", "VerifyAudit", 40, 60),
        ("GET", "/cluster/diagnosis", "Diagnose", 5, 10),
        ("GET", "/limits", "ListLimits", 0, 1.5),
        ("POST", "/archive/verify", "VerifyArchive", 50, 60),
    ],
)
def test_a_call_that_can_take_long_has_the_time_for_it(
    api: Any, verb: str, path: str, method: str, least: float, most: float
) -> None:
    body = {"log_day": "2026-11-20", "reason": "r"} if verb == "POST" else None
    assert api.ask(verb, path, body).status_code == 200
    # gRPC rounds deadlines up.
    assert least < api.further.seconds[method] < most + 1


def test_a_rule_and_a_token_are_made(api: Any) -> None:
    api.further.answers["AddRule"] = pb.AddRuleResponse(id=4)
    body = {"group": "ops", "role": "operator", "selector": {"labels": {"team": "ops"}}, "reason": "r"}
    response = api.post("/rules", body)
    assert (response.status_code, response.json) == (201, {"id": 4})
    rule = api.further.last.rule
    assert (rule.group, rule.effect, rule.role, dict(rule.selector.labels)) == (
        "ops",
        "allow",
        "operator",
        {"team": "ops"},
    )
    api.further.answers["CreateToken"] = pb.CreateTokenResponse(id=5, secret="toban_pat_x")
    response = api.post("/tokens", {"user": "bob", "role": "viewer", "selector": {"job": "a"}})
    assert (response.status_code, response.json["secret"]) == (201, "toban_pat_x")
    assert (api.further.last.days, api.further.last.selector.job) == (90, "a")


def test_one_setting_has_its_version_as_its_etag(api: Any) -> None:
    setting = pb.Setting(name="a", value_json="5", version=2)
    api.further.answers |= {"ListSettings": pb.ListSettingsResponse(settings=[setting]), "UpdateSetting": setting}
    response = api.get("/settings/a")
    assert (response.headers["ETag"], response.json["value"]) == ('"2"', 5)
    assert api.get("/settings/b").json["code"] == "NOT_FOUND"
    assert api.put("/settings/a", {"value": 5}, If_Match='"0"').status_code == 200
    assert api.further.last.HasField("version") and api.further.last.version == 0
    assert api.put("/settings/a", {"value": 5}).status_code == 200 and not api.further.last.HasField("version")


def test_a_password_or_secret_is_in_no_problem(api: Any) -> None:
    for path, body in (
        ("/users", {"name": "", "password": "hunter2hunter2"}),
        ("/secrets/s", {"value": "hunter2hunter2", "jobs": 5}),
    ):
        response = api.ask("POST" if path == "/users" else "PUT", path, body)
        assert response.status_code == 400 and "hunter2" not in response.get_data(as_text=True)


def test_every_code_is_a_problem_with_a_status_of_its_own(api: Any, subtests: pytest.Subtests) -> None:
    for code in ErrorCode:
        with subtests.test(code.value):
            api.refuse("NoteRun", TobanError(code, "what, where, remedy", detail={"more": 1}))
            response = api.post("/runs/1/notes", {"text": "x"}, X_Request_Id="abc-1")
            problem = response.json
            assert response.status_code == problem["status"] == status_of(TobanError(code, ""))
            assert problem["title"] in TITLES.values()
            assert (problem["code"], problem["type"]) == (code.value, f"urn:toban:error:{code}")
            assert problem["instance"] == "/api/v1/runs/1/notes"
            assert response.content_type == "application/problem+json"
            assert response.headers["X-Request-Id"] == problem["request_id"] == "abc-1"
            assert ("Retry-After" in response.headers) == (response.status_code in (429, 503))
            assert ("WWW-Authenticate" in response.headers) == (response.status_code == 401)
            if code is not ErrorCode.UNAVAILABLE:
                assert (problem["detail"], problem["context"]) == ("what, where, remedy", {"more": 1})


def test_mistakes_in_manifests_have_their_places(api: Any) -> None:
    mistake = {
        "source": "body",
        "path": "spec.steps",
        "code": "MANIFEST_INVALID",
        "message": "is missing",
        "hint": "add it",
    }
    api.refuse("Apply", TobanError(ErrorCode.MANIFEST_INVALID, "body: ...", detail={"errors": [mistake]}))
    found = api.put("/jobs/a", {"spec": {}}).json
    assert found["errors"] == [{"where": "body.spec.steps", "message": "is missing; add it"}] and found["context"] == {}


def test_a_request_id_of_another_form_is_replaced(api: Any) -> None:
    first = api.get("/jobs", X_Request_Id="a b").headers["X-Request-Id"]
    assert len(first) == 16 and first != api.get("/jobs").headers["X-Request-Id"]


def test_without_a_coordinator_there_is_a_problem(api: Any) -> None:
    api.web.cluster.stop_coordinator()
    response = api.get("/jobs")
    assert response.status_code == 503 and response.json["code"] == "UNAVAILABLE"
    assert response.json["context"]["service"] == "coordinator"


def test_a_defect_is_a_problem_with_an_id(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_given: Any) -> Any:
        raise KeyError("x")

    monkeypatch.setattr("toban_admin_web.adapters.api_client.to_proto", broken)
    response = api.get("/jobs")
    assert response.status_code == 500 and response.json["code"] == "INTERNAL"
    assert response.json["context"]["error_id"] in response.json["detail"]


def logged(caplog: pytest.LogCaptureFixture, request_id: str) -> list[tuple[str, str]]:
    """Level and text of each line with this id."""
    return [(one.levelname, one.getMessage()) for one in caplog.records if request_id in one.getMessage()]


@pytest.mark.parametrize(
    ("error", "level", "text"),
    [
        (TobanError(ErrorCode.NOT_FOUND, "there is no run 1"), "INFO", "request refused"),
        (TobanError(ErrorCode.UNIMPLEMENTED, "not here"), "WARNING", "request failed"),
        (KeyError("x"), "ERROR", "request failed with an unexpected error"),
    ],
)
def test_a_refused_or_failed_request_has_one_line_with_its_id(
    api: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    level: str,
    text: str,
) -> None:
    def broken(*_given: Any, **_more: Any) -> Any:
        raise error

    monkeypatch.setattr("toban_admin_web.adapters.api_client.ApiClient.write", broken)
    with caplog.at_level(logging.DEBUG):
        api.post("/runs/1/notes", {"text": "x"}, X_Request_Id="abc-1")
    [(found, line)] = logged(caplog, "abc-1")
    assert found == level and text in line and "/api/v1/runs/1/notes" in line


def test_a_client_that_is_too_fast_does_not_fill_the_log(api: Any, caplog: pytest.LogCaptureFixture) -> None:
    api.refuse("NoteRun", TobanError(ErrorCode.RESOURCE_EXHAUSTED, "too many"))
    with caplog.at_level(logging.INFO):
        assert api.post("/runs/1/notes", {"text": "x"}, X_Request_Id="abc-1").status_code == 429
    assert logged(caplog, "abc-1") == []


def test_a_request_of_another_host_or_path_has_a_line_and_a_good_one_has_none(
    api: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        api.get("/nope", X_Request_Id="abc-2")
        api.get("/jobs", X_Request_Id="abc-3")
        api.get("/jobs", role="", X_Request_Id="abc-4")
    assert [level for level, _ in logged(caplog, "abc-2")] == ["INFO"]
    assert logged(caplog, "abc-3") == []
    assert [level for level, _ in logged(caplog, "abc-4")] == ["INFO"]


@pytest.mark.parametrize("path", ["/tokens", "/account/tokens"])
def test_a_token_can_be_for_external_work(api: Any, path: str) -> None:
    user = {"user": "bob"} if path == "/tokens" else {}
    selector = {"scope": "worker", "scope_id": "transcode"}
    assert api.post(path, user | {"role": "operator", "selector": selector}).status_code == 201
    [asked] = [one[1] for one in api.further.calls]
    assert (asked.role, asked.selector.scope, asked.selector.scope_id) == ("operator", "worker", "transcode")


def test_a_rule_cannot_be_for_external_work(api: Any) -> None:
    rule = {"user": "bob", "role": "operator", "selector": {"scope": "worker", "scope_id": "transcode"}}
    response = api.post("/rules", rule)
    assert response.status_code == 400 and api.further.calls == []
    assert response.json["errors"][0]["where"] == "body.selector.scope"
