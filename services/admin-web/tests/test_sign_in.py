"""Signing in and out: cookies, forms, foreign origins, fixation, the page for the one-time link."""

from __future__ import annotations

import re
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError

SESSION = "5e" * 32
PASSWORD = "correct horse battery"
LINK = "11" * 32
LOCAL = {"Origin": "http://localhost"}
PAGES = [
    "/",
    "/runs",
    "/runs/1",
    "/jobs",
    "/jobs/hello",
    "/schedules",
    "/executors",
    "/account",
    "/nope",
    "/runs/1/log.txt",
]


@pytest.fixture
def away(web: Any) -> Any:
    """A site, with a browser that has not signed in."""
    web.client.delete_cookie("toban-session")
    return web


def fields(web: Any, page: str, **given: str) -> dict[str, str]:
    """The fields of the first form of a page."""
    text = web.get(page).get_data(as_text=True)
    form = text.partition("<main")[2].partition("</form>")[0]
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))
    return {**hidden, **given}


def enter(web: Any, password: str = PASSWORD, path: str = "/sign-in", **headers: str) -> Any:
    form = fields(web, path, user="ada", password=password)
    return web.client.post("/sign-in", data=form, headers=LOCAL | headers)


def cookies_of(response: Any) -> dict[str, str]:
    """Name of each cookie that is set → its whole header."""
    return {header.partition("=")[0]: header for header in response.headers.getlist("Set-Cookie")}


@pytest.mark.seed(118)
@pytest.mark.parametrize("path", PAGES)
def test_without_a_session_every_page_leads_to_the_sign_in(away: Any, path: str) -> None:
    response = away.get(path)
    assert response.status_code == 303 and response.headers["Location"].startswith("/sign-in?next=")
    assert away.cluster.reader.requests == []


def test_scripts_and_streams_get_401(away: Any) -> None:
    assert away.get("/runs?part=1").status_code == 401
    assert away.get("/runs/1/log/stream", Accept="text/event-stream").status_code == 401


@pytest.mark.parametrize("secret", ["aa" * 32, "x", "5e" * 31 + "5", "ü", "5E" * 32])
def test_a_session_that_the_coordinators_do_not_know_is_none(away: Any, secret: str) -> None:
    away.client.set_cookie("toban-session", secret)
    assert away.get("/").status_code == 303


def test_signing_in_leads_on_to_the_page(away: Any) -> None:
    response = enter(away, path="/sign-in?next=/runs?state%3DFAILED")
    assert response.status_code == 303 and response.headers["Location"] == "/runs?state=FAILED"
    header = cookies_of(response)["toban-session"]
    assert "HttpOnly" in header and "SameSite=Lax" in header and "Path=/" in header and "Secure" not in header
    assert "ada" in away.page("/")
    assert away.cluster.reader.metadata[-1]["toban-credential"] in away.cluster.accounts.sessions


def test_behind_tls_the_cookies_are_host_cookies(new_web: Any) -> None:
    web = new_web(http_names=("toban.example",))
    named = {"base_url": "https://toban.example"}
    page = web.client.get("/sign-in", **named)
    csrf = re.findall(r'name="csrf" value="(\w+)"', page.get_data(as_text=True))[0]
    form = {"csrf": csrf, "user": "ada", "password": PASSWORD}
    response = web.client.post("/sign-in", data=form, headers={"Origin": "https://toban.example"}, **named)
    for given in (cookies_of(page)["__Host-toban-form"], cookies_of(response)["__Host-toban-session"]):
        assert "Secure" in given and "HttpOnly" in given and "Path=/" in given and "Domain" not in given
    assert web.client.get("/", **named).status_code == 200
    assert (
        web.client.post("/sign-in", data=form, headers={"Origin": "http://toban.example"}, **named).status_code == 403
    )


def test_a_wrong_password_is_said_and_gives_no_session(away: Any) -> None:
    response = enter(away, "wrong")
    assert response.status_code == 401 and "wrong" in response.get_data(as_text=True)
    assert "toban-session" not in cookies_of(response)


def test_throttled_sign_ins_say_how_long(away: Any) -> None:
    away.cluster.accounts.refusal = TobanError(
        ErrorCode.RESOURCE_EXHAUSTED, "too many", detail={"retry_after_seconds": 17}
    )
    response = enter(away)
    assert response.status_code == 429 and response.headers["Retry-After"] == "17"
    assert "17 s" in response.get_data(as_text=True)


def test_a_session_that_the_browser_brought_is_not_kept(away: Any) -> None:
    """Session fixation: the secret of a session is made at the sign-in."""
    planted = "ab" * 32
    away.client.set_cookie("toban-session", planted)
    enter(away)
    found = away.client.get_cookie("toban-session")
    assert found is not None and found.value not in (planted, SESSION)
    ended = [one.session for one in away.cluster.accounts.requests if hasattr(one, "everywhere")]
    assert ended == [planted]


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:9999", "null", ""])
@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/first"])
def test_forms_of_other_sites_are_refused(web: Any, path: str, origin: str) -> None:
    form = fields(web, "/account", user="ada", password=PASSWORD)
    response = web.client.post(path, data=form, headers={"Origin": origin} if origin else {})
    assert response.status_code == 403
    assert not [one for one in web.cluster.accounts.requests if hasattr(one, "everywhere")]


@pytest.mark.parametrize("csrf", ["", "0" * 64, "of the sign-in"])
def test_a_form_without_its_token_is_refused(web: Any, csrf: str) -> None:
    if csrf == "of the sign-in":
        csrf = fields(web, "/sign-in")["csrf"]
    response = web.client.post("/sign-out", data={"csrf": csrf}, headers=LOCAL)
    assert response.status_code == 403 and SESSION in web.cluster.accounts.sessions


def test_signing_in_needs_the_cookie_of_its_form(away: Any) -> None:
    form = fields(away, "/sign-in", user="ada", password=PASSWORD)
    away.client.delete_cookie("toban-form")
    assert away.client.post("/sign-in", data=form, headers=LOCAL).status_code == 403


@pytest.mark.parametrize(("everywhere", "left"), [({}, {"other"}), ({"everywhere": "1"}, set())])
def test_signing_out(web: Any, everywhere: dict[str, str], left: set[str]) -> None:
    web.cluster.accounts.sessions["other"] = "ada"
    form = fields(web, "/account", **everywhere)
    response = web.client.post("/sign-out", data=form, headers=LOCAL)
    assert response.status_code == 303 and response.headers["Location"] == "/sign-in"
    assert set(web.cluster.accounts.sessions) == left
    assert web.get("/").status_code == 303


def test_a_session_that_was_revoked_ends_here_too(web: Any) -> None:
    assert web.get("/").status_code == 200
    web.cluster.accounts.sessions.clear()
    assert web.get("/").status_code == 303


def test_signing_out_is_not_possible_by_a_link(web: Any) -> None:
    assert web.get("/sign-out").status_code == 405
    assert SESSION in web.cluster.accounts.sessions


@pytest.mark.parametrize("path", [*PAGES, "/sign-in", "/runs/1/log/stream"])
def test_before_the_first_administrator_there_is_one_page(web: Any, path: str) -> None:
    web.cluster.accounts.administrator = False
    response = web.get(path)
    assert response.status_code == 303 and response.headers["Location"] == "/first"
    assert web.cluster.reader.requests == [] and web.cluster.accounts.requests == []
    assert "one-time" in web.page("/first")
    with web.get("/static/components.css") as static:
        assert static.status_code == 200


def test_forms_wait_for_the_first_administrator(web: Any) -> None:
    web.cluster.accounts.administrator = False
    for path in ("/sign-in", "/sign-out"):
        assert web.client.post(path, data={"csrf": "x"}, headers=LOCAL).status_code == 401
    assert web.cluster.accounts.requests == []


def test_the_first_administrator_is_signed_in(away: Any) -> None:
    away.cluster.accounts.administrator = False
    form = fields(away, "/first", link=LINK, user="ada", password=PASSWORD, again=PASSWORD)
    response = away.client.post("/first", data=form, headers=LOCAL)
    assert response.status_code == 303 and "toban-session" in cookies_of(response)
    assert "ada" in away.page("/")
    assert away.get("/first").headers["Location"] == "/sign-in"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"link": "22" * 32}, "link is not good"),
        ({"again": "another horse battery"}, "passwords differ"),
    ],
)
def test_a_wrong_form_for_the_first_administrator(away: Any, given: dict[str, str], text: str) -> None:
    away.cluster.accounts.administrator = False
    form = fields(away, "/first", link=LINK, user="ada", password=PASSWORD, again=PASSWORD) | given
    response = away.client.post("/first", data=form, headers=LOCAL)
    page = response.get_data(as_text=True)
    assert response.status_code in (400, 401) and text in page and PASSWORD not in page
    assert not away.cluster.accounts.administrator


def test_who_is_second_with_the_link_gets_a_conflict(away: Any) -> None:
    away.cluster.accounts.administrator = False
    form = fields(away, "/first", link=LINK, user="eve", password=PASSWORD, again=PASSWORD)
    away.cluster.accounts.refusal = TobanError(
        ErrorCode.RESOURCE_INVALID_STATE, "there is an administrator already; sign in as one"
    )
    response = away.client.post("/first", data=form, headers=LOCAL)
    assert response.status_code == 409 and "there is an administrator already" in response.get_data(as_text=True)
    assert "toban-session" not in cookies_of(response)


def test_a_weak_password_is_refused_with_the_reason(away: Any) -> None:
    away.cluster.accounts.administrator = False
    away.cluster.accounts.refusal = TobanError(ErrorCode.INVALID_ARGUMENT, "a password has at least 12 characters")
    form = fields(away, "/first", link=LINK, user="ada", password="x", again="x")
    response = away.client.post("/first", data=form, headers=LOCAL)
    assert response.status_code == 400 and "at least 12 characters" in response.get_data(as_text=True)


@pytest.mark.seed(118)
def test_what_a_person_may_not_see_is_said(web: Any) -> None:
    web.cluster.reader.responses["GetRun"] = TobanError(
        ErrorCode.PERMISSION_DENIED, "ada may not view here", detail={"user": "ada"}
    )
    response = web.get("/runs/1")
    assert response.status_code == 403 and "ada may not view here" in response.get_data(as_text=True)


def test_the_address_of_the_person_goes_with_each_call(new_web: Any) -> None:
    web = new_web(http_proxies=1)
    web.get("/runs", X_Forwarded_For="198.51.100.7, 203.0.113.9")
    assert web.cluster.reader.metadata[-1]["toban-address"] == "203.0.113.9"
    assert web.cluster.accounts.requests[-1].address == "203.0.113.9"


@pytest.mark.parametrize("tag", ["en", "ja", "zh-Hant"])
@pytest.mark.parametrize("path", ["/sign-in", "/account"])
def test_the_pages_in_every_language(web: Any, path: str, tag: str) -> None:
    assert f'<html lang="{tag}">' in web.page(f"{path}?lang={tag}")


class StillClock:
    """Moves only when the test says so."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_who_was_told_to_wait_is_refused_without_a_coordinator_until_then(away: Any) -> None:
    """Guesses from one address do not load the cluster, and so not the others."""
    accounts, clock = away.cluster.accounts, StillClock()
    away.worker.context.gate.people._clock = clock
    accounts.refusal = TobanError(ErrorCode.RESOURCE_EXHAUSTED, "too many", detail={"retry_after_seconds": 17})
    assert enter(away).status_code == 429
    accounts.refusal = None
    accounts.requests.clear()
    clock.now = 15.5
    response = enter(away)
    assert (response.status_code, response.headers["Retry-After"]) == (429, "2") and accounts.requests == []
    form = fields(away, "/sign-in", user="bob", password="wrong")
    assert away.client.post("/sign-in", data=form, headers=LOCAL).status_code == 401
    clock.now = 17.0
    assert enter(away).status_code == 303
