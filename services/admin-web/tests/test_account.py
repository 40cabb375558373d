"""The page of the own account: password, sessions, API tokens."""

from __future__ import annotations

import re
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb

PASSWORD, OTHER = "correct horse battery", "another horse battery"
LOCAL = {"Origin": "http://localhost"}
PASSWORDS = {"current": PASSWORD, "password": OTHER, "again": OTHER}


@pytest.fixture(autouse=True)
def own(web: Any) -> Any:
    """The answers of the coordinator."""
    mine = pb.UserSession(id=7, address="192.0.2.1", user_agent="mine", created_at=web.stamp(60), current=True)
    other = pb.UserSession(id=8, address="192.0.2.2", user_agent="<b>theirs", last_used_at=web.stamp(90))
    selector = pb.AccessSelector(job="deploy")
    token = pb.ApiToken(id=3, name="ci", role="viewer", selector=selector, ends_at=web.stamp(-86_400))
    revoked = pb.ApiToken(id=2, name="revoked-one", role="viewer", ends_at=web.stamp(-86_400), revoked=True)
    ended = pb.ApiToken(id=1, name="ended-one", role="viewer", ends_at=web.stamp(60))
    answers = web.cluster.accounts.own
    answers |= {
        "ListOwnSessions": pb.ListOwnSessionsResponse(sessions=[mine, other]),
        "CreateOwnToken": pb.CreateTokenResponse(id=5, secret="toban_pat_once"),
        "ListOwnTokens": pb.ListTokensResponse(tokens=[token, revoked, ended]),
    }
    return answers


def token_of(web: Any, path: str) -> str:
    """The form token of the form with this action."""
    forms = re.findall(
        r'<form[^>]*action="([^"]+)">\s*<input type="hidden" name="csrf" value="(\w+)"', web.page("/account")
    )
    return dict(forms)[path]


def post(web: Any, path: str, **given: str) -> Any:
    return web.client.post(path, data={"csrf": token_of(web, path), **given}, headers=LOCAL)


def asked(web: Any, method: str) -> list[Any]:
    return [request for name, _, request in web.cluster.accounts.asked if name == method]


def test_sessions_and_tokens_are_shown(web: Any) -> None:
    text = web.page("/account")
    assert "192.0.2.1" in text and "this session" in text and "&lt;b&gt;theirs" in text
    assert "deploy" in text and "revoked-one" not in text and "ended-one" not in text
    assert "/account/sessions/8/end" in text and "/account/sessions/7/end" not in text
    assert {user for _, user, _ in web.cluster.accounts.asked} == {"ada"}


def test_a_changed_password_gives_this_browser_a_new_session(web: Any) -> None:
    before = web.client.get_cookie("toban-session").value
    accounts = web.cluster.accounts
    # The fake knows one password.
    response = post(
        web, "/account/password", **(PASSWORDS | {"current": "old", "password": PASSWORD, "again": PASSWORD})
    )
    assert response.status_code == 303 and response.headers["Location"] == "/account?done=password"
    [request] = asked(web, "ChangeOwnPassword")
    assert (request.current, request.password) == ("old", PASSWORD)
    after = web.client.get_cookie("toban-session").value
    assert after != before and accounts.sessions[after] == "ada"
    assert "The password is changed" in web.page("/account?done=password")


def test_a_password_that_cannot_be_signed_in_with_leads_to_the_sign_in(web: Any) -> None:
    response = post(web, "/account/password", **PASSWORDS)
    assert response.status_code == 303 and response.headers["Location"] == "/sign-in"


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (TobanError(ErrorCode.UNAUTHENTICATED, "no"), 400, "The current password is wrong"),
        (TobanError(ErrorCode.INVALID_ARGUMENT, "the password has 2 characters"), 400, "has 2 characters"),
        (
            TobanError(ErrorCode.RESOURCE_EXHAUSTED, "wait", detail={"retry_after_seconds": 17}),
            429,
            "Try again in 17 s",
        ),
    ],
)
def test_a_refused_password_says_why(web: Any, own: Any, error: TobanError, status: int, text: str) -> None:
    own["ChangeOwnPassword"] = error
    response = post(web, "/account/password", **PASSWORDS)
    assert response.status_code == status and text in response.get_data(as_text=True)


def test_two_passwords_must_be_the_same(web: Any) -> None:
    response = post(web, "/account/password", **(PASSWORDS | {"again": "a different one"}))
    assert response.status_code == 400 and "differ" in response.get_data(as_text=True)
    assert asked(web, "ChangeOwnPassword") == []


def test_a_session_and_a_token_are_ended(web: Any, own: Any) -> None:
    for path, method, number in (
        ("/account/sessions/8/end", "EndOwnSession", 8),
        ("/account/tokens/3/revoke", "RevokeOwnToken", 3),
    ):
        assert post(web, path).status_code == 303
        assert [request.id for request in asked(web, method)] == [number]
        own[method] = TobanError(ErrorCode.NOT_FOUND, "it has ended")
        response = post(web, path)
        assert response.status_code == 404 and "it has ended" in response.get_data(as_text=True)


def test_a_token_is_shown_once(web: Any) -> None:
    response = post(web, "/account/tokens", name="ci", role="viewer", job="deploy", days="30")
    assert response.status_code == 200 and "toban_pat_once" in response.get_data(as_text=True)
    assert response.headers["Cache-Control"] == "no-store"
    [request] = asked(web, "CreateOwnToken")
    assert (request.name, request.role, request.selector.job, request.days) == ("ci", "viewer", "deploy", 30)
    assert "toban_pat_once" not in web.page("/account")


def test_a_token_for_external_work(web: Any, own: Any) -> None:
    listed = own["ListOwnTokens"].tokens[0]
    listed.selector.CopyFrom(pb.AccessSelector(scope="worker", scope_id="transcode"))
    assert "worker:transcode" in web.page("/account")
    given = {"name": "gpu", "role": "operator", "days": "30"}
    assert post(web, "/account/tokens", **given, worker_type=" transcode ").status_code == 200
    assert post(web, "/account/tokens", **given, worker_type="").status_code == 200
    selectors = [request.selector for request in asked(web, "CreateOwnToken")]
    assert [(one.scope, one.scope_id) for one in selectors] == [("worker", "transcode"), ("", "")]
    own["CreateOwnToken"] = TobanError(ErrorCode.INVALID_ARGUMENT, "scope worker needs role operator")
    response = post(web, "/account/tokens", **given | {"role": "viewer"}, worker_type="transcode")
    assert response.status_code == 400 and "needs role operator" in response.get_data(as_text=True)


@pytest.mark.parametrize("days", ["", "-1", "99999999999", "x"])
def test_wrong_days_reach_the_coordinator_as_0_which_it_refuses(web: Any, own: Any, days: str) -> None:
    own["CreateOwnToken"] = TobanError(ErrorCode.INVALID_ARGUMENT, "a token for 0 days")
    response = post(web, "/account/tokens", name="ci", role="viewer", days=days)
    assert response.status_code == 400 and asked(web, "CreateOwnToken")[0].days == 0


@pytest.mark.parametrize(
    "path", ["/account/password", "/account/sessions/8/end", "/account/tokens", "/account/tokens/3/revoke"]
)
def test_a_form_of_another_purpose_or_origin_is_refused(web: Any, path: str) -> None:
    other = {"csrf": token_of(web, "/sign-out")}
    assert web.client.post(path, data=other, headers=LOCAL).status_code == 403
    own = {"csrf": token_of(web, path)}
    assert web.client.post(path, data=own, headers={"Origin": "http://elsewhere"}).status_code == 403
    assert web.client.get(path).status_code == 405
    assert {name for name, _, _ in web.cluster.accounts.asked} <= {"ListOwnSessions", "ListOwnTokens"}
