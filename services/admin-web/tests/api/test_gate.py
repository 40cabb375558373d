"""Who may use the API: tokens, sessions with their token against forged requests, roles; everything else is refused."""

from __future__ import annotations

from typing import Any

import pytest

from toban_admin_web.decide.browser_safety import form_token
from toban_domain.errors import ErrorCode, TobanError

SESSION = "5e" * 32
LOCAL = {"Origin": "http://localhost"}
ADMIN = f"toban_pat_{'admin':0>32}"


def as_session(api: Any, secret: str = SESSION) -> Any:
    api.web.client.set_cookie("toban-session", secret)
    return api


def test_a_token_is_the_person_of_every_call(api: Any) -> None:
    response = api.get("/jobs", role="viewer")
    assert response.status_code == 200 and response.content_type == "application/json"
    method, _, given = api.further.calls[-1]
    assert method == "ListJobs" and given["toban-credential"].startswith("toban_pat_")
    assert given["toban-address"] == "127.0.0.1"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer x",
        "Basic YTpi",
        "Bearer toban_pat_",
        "Bearer toban_pat_ü" + "0" * 32,
        "toban_pat_" + "0" * 32,
    ],
)
def test_without_a_good_token_every_route_answers_401(api: Any, header: str) -> None:
    response = api.get("/jobs", role="", **({"Authorization": header} if header else {}))
    assert response.status_code == 401 and response.headers["WWW-Authenticate"] == 'Bearer realm="toban"'
    assert response.content_type == "application/problem+json"
    assert response.json["code"] == "UNAUTHENTICATED" and "API token" in response.json["detail"]
    assert api.further.calls == []


def test_a_token_of_a_bad_form_is_named_as_one(api: Any) -> None:
    response = api.get("/jobs", role="", Authorization="Bearer toban_pat_nope")
    assert "has no valid API token" in response.json["detail"] and "nope" not in response.json["detail"]


def test_an_unknown_token_is_refused(api: Any) -> None:
    response = api.get("/jobs", role="", Authorization="Bearer toban_pat_" + "9" * 64)
    assert response.status_code == 401 and "revoked" in response.json["detail"]


def test_a_session_may_read(api: Any) -> None:
    response = as_session(api).get("/session", role="")
    person = {"user": "ada", "role": "admin", "worker_type": ""}
    assert response.json == person | {"csrf_token": form_token(SESSION, "api")}
    assert as_session(api).get("/jobs", role="").status_code == 200


def test_a_session_that_has_ended_is_refused(api: Any) -> None:
    assert as_session(api, "aa" * 32).get("/jobs", role="").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        LOCAL,
        {"X_CSRF_Token": form_token(SESSION, "api")},
        {"Origin": "http://evil.example", "X_CSRF_Token": form_token(SESSION, "api")},
        {**LOCAL, "X_CSRF_Token": form_token(SESSION, "sign_in.leave")},
        {**LOCAL, "X_CSRF_Token": form_token("aa" * 32, "api")},
    ],
)
def test_a_session_changes_nothing_for_another_site(api: Any, headers: dict[str, str]) -> None:
    response = as_session(api).post("/runs/1/notes", {"text": "x"}, role="", **headers)
    assert response.status_code == 403 and response.json["code"] == "PERMISSION_DENIED"
    assert api.further.calls == []


def test_a_session_with_its_token_changes_things(api: Any) -> None:
    token = as_session(api).get("/session", role="").json["csrf_token"]
    assert api.post("/runs/1/notes", {"text": "x"}, role="", **LOCAL, X_CSRF_Token=token).status_code == 200
    assert api.further.calls[-1][0] == "NoteRun"


def test_a_token_counts_before_a_session_and_needs_no_other_proof(api: Any) -> None:
    response = as_session(api).post("/runs/1/notes", {"text": "x"}, role="viewer")
    assert response.status_code == 403 and "u-viewer" in response.json["detail"]
    assert as_session(api).post("/runs/1/notes", {"text": "x"}, role="operator").status_code == 200


def test_other_host_names_are_refused(api: Any) -> None:
    response = api.get("/jobs", Host="evil.example")
    assert response.status_code == 421 and response.json["code"] == "MISDIRECTED_REQUEST"


def test_before_the_first_administrator_tokens_work_and_nothing_leads_to_a_page(api: Any) -> None:
    api.web.cluster.accounts.administrator = False
    assert api.get("/jobs").status_code == 200
    assert api.get("/jobs", role="").status_code == 401


@pytest.mark.parametrize("path", ["/nope", "/jobs/", "/runs/x", "/runs/99999999999999999999", "", "/"])
def test_a_path_that_does_not_exist_is_a_problem_and_no_page(api: Any, path: str) -> None:
    response = api.get(path)
    assert response.status_code == 404 and response.content_type == "application/problem+json"


def test_a_method_that_a_path_does_not_have_names_those_that_it_has(api: Any) -> None:
    response = api.ask("PATCH", "/jobs")
    assert response.status_code == 405 and response.json["code"] == "METHOD_NOT_ALLOWED"
    assert "GET" in response.headers["Allow"]


class StillClock:
    """Moves only when the test says so: no request is late, however slow the machine is."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def still(api: Any) -> StillClock:
    """The clock by which a site remembers persons."""
    api.web.worker.context.gate.people._clock = StillClock()
    return api.web.worker.context.gate.people._clock  # type: ignore[no-any-return]


def asked(api: Any) -> int:
    """How often a coordinator was asked whose credential it is."""
    return len(api.web.cluster.accounts.requests)


def test_whose_token_it_is_is_asked_once_for_requests_that_follow_each_other(api: Any) -> None:
    clock = still(api)
    assert [api.get("/jobs").status_code for _ in range(3)] == [200] * 3 and asked(api) == 1
    clock.now = 1.9
    assert api.get("/jobs").status_code == 200 and asked(api) == 1
    clock.now = 2.1
    assert api.get("/jobs").status_code == 200 and asked(api) == 2
    assert api.get("/jobs", role="viewer").status_code == 200 and asked(api) == 3


def test_a_revoked_token_stops_at_every_replica(api: Any, new_web: Any) -> None:
    """Coordinators refuse each of its calls, and what they are not asked for is never decided by what a replica remembers."""
    other = type(api)(new_web(), api.further)
    for replica in (api, other):
        still(replica)
        assert replica.get("/jobs").status_code == 200
    del api.web.cluster.accounts.sessions[ADMIN]
    revoked = TobanError(ErrorCode.UNAUTHENTICATED, "the API token is revoked", detail={"sign_in": True})
    api.further.answers |= {"ListJobs": revoked, "GetReadTicket": revoked}
    for replica in (api, other):
        assert replica.get("/jobs").status_code == 401
        assert replica.get("/runs/7/logs").status_code == 401
        assert replica.get("/session").status_code == 401
    assert asked(api) == 4


def test_a_revoked_token_is_forgotten_after_two_seconds(api: Any) -> None:
    clock = still(api)
    assert api.get("/jobs").status_code == 200
    del api.web.cluster.accounts.sessions[ADMIN]
    clock.now = 2.0
    api.further.calls.clear()
    assert api.get("/jobs").status_code == 401 and api.further.calls == []
