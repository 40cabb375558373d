"""Sign-in with an OpenID provider on loopback: the whole way of a browser, other browsers, replays, foreign pages, a provider that says no."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_testing.oidc_provider import Provider, query_of, with_query

COOKIE = "toban-oidc"


@pytest.fixture(params=["confidential", "public"])
def provider(request: pytest.FixtureRequest) -> Iterator[Provider]:
    made = Provider() if request.param == "confidential" else Provider(secret="")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def site(new_web: Any, provider: Provider) -> Any:
    """A site with the provider, and a browser that has not signed in."""
    web = new_web(oidc_client_secret=provider.secret)
    web.client.delete_cookie("toban-session")
    web.cluster.accounts.provider = provider
    return web


def leave(site: Any, path: str = "/sign-in/oidc") -> str:
    """Where the site sends the browser."""
    response = site.get(path)
    assert response.status_code == 303, response.get_data(as_text=True)
    return str(response.headers["Location"])


def back(site: Any, provider: Provider, path: str = "/sign-in/oidc") -> str:
    """Where the provider sends it then, as a path."""
    return provider.grants_code(leave(site, path)).removeprefix("http://localhost")


def tokens(site: Any) -> list[Any]:
    """The ID tokens that reached a coordinator."""
    return [one for one in site.cluster.accounts.requests if hasattr(one, "id_token")]


def test_to_the_provider_and_back(site: Any, provider: Provider) -> None:
    page = site.page("/sign-in?next=/runs?state%3DFAILED")
    assert "Sign in with Example" in page and "Password" in page
    url = leave(site, "/sign-in/oidc?next=/runs?state%3DFAILED")
    sent = query_of(url)
    assert (sent["response_type"], sent["code_challenge_method"]) == ("code", "S256")
    assert sent["redirect_uri"] == "http://localhost/sign-in/oidc/callback"
    response = site.get(provider.grants_code(url).removeprefix("http://localhost"))
    assert response.status_code == 303 and response.headers["Location"] == "/runs?state=FAILED"
    [given] = tokens(site)
    assert given.nonce == sent["nonce"] and given.id_token.count(".") == 2 and given.address
    assert "ada" in site.page("/")
    assert site.client.get_cookie(COOKIE) is None


def test_behind_tls_the_cookie_is_a_host_cookie_and_the_address_https(new_web: Any, provider: Provider) -> None:
    web = new_web(http_names=("toban.example",))
    web.cluster.accounts.provider = provider
    response = web.client.get("/sign-in/oidc", base_url="https://toban.example")
    cookie = next(
        header for header in response.headers.getlist("Set-Cookie") if header.startswith("__Host-toban-oidc=")
    )
    assert "Secure" in cookie and "HttpOnly" in cookie and "Path=/" in cookie and "Domain" not in cookie
    assert query_of(response.headers["Location"])["redirect_uri"] == "https://toban.example/sign-in/oidc/callback"


def refused(site: Any, path: str, status: int, text: str) -> None:
    response = site.get(path)
    page = response.get_data(as_text=True)
    assert response.status_code == status and text in page, page
    assert site.client.get_cookie("toban-session") is None and site.client.get_cookie(COOKIE) is None


def test_an_answer_counts_once(site: Any, provider: Provider) -> None:
    path = back(site, provider)
    cookie = site.client.get_cookie(COOKIE).value
    assert site.get(path).status_code == 303
    site.client.delete_cookie("toban-session")
    refused(site, path, 400, "not started in this browser")
    # Nor with the cookie of the time before: the provider takes a code once.
    site.client.set_cookie(COOKIE, cookie)
    refused(site, path, 401, "refused the code")
    assert len(tokens(site)) == 1


def test_a_code_of_another_browser_gives_no_session(site: Any, new_web: Any, provider: Provider) -> None:
    """An attacker sends a link with a code of their own: the reader would work in the attacker's account."""
    path = back(site, provider)
    site.client.delete_cookie(COOKIE)
    refused(site, path, 400, "not started in this browser")
    leave(site)
    refused(site, path, 400, "not started in this browser")
    assert tokens(site) == []


@pytest.mark.parametrize(
    "change", [{"state": ""}, {"state": "0" * 64}, {"state": "ü"}, {"iss": "https://evil.example"}, {"code": ""}]
)
def test_an_answer_that_was_changed(site: Any, provider: Provider, change: dict[str, str]) -> None:
    refused(site, with_query(back(site, provider), **change), 400, "not started in this browser")
    assert tokens(site) == []


@pytest.mark.parametrize("cookie", ["x", "W10=", "W251bGwsIG51bGwsIG51bGxd", "ü"])
def test_a_cookie_that_is_none_of_ours(site: Any, provider: Provider, cookie: str) -> None:
    path = back(site, provider)
    site.client.set_cookie(COOKIE, cookie)
    refused(site, path, 400, "not started in this browser")


@pytest.mark.parametrize(
    "target",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:x", "/" + "a" * 1500, "/" + "日" * 900],
)
def test_no_redirect_to_elsewhere(site: Any, provider: Provider, target: str) -> None:
    path = back(site, provider, f"/sign-in/oidc?next={target}")
    assert site.get(path).headers["Location"] == "/"


def test_a_session_that_the_browser_brought_ends(site: Any, provider: Provider) -> None:
    planted = "ab" * 32
    site.client.set_cookie("toban-session", planted)
    assert site.get(back(site, provider)).status_code == 303
    assert site.client.get_cookie("toban-session").value != planted
    assert [one.session for one in site.cluster.accounts.requests if hasattr(one, "everywhere")] == [planted]


def test_a_person_who_is_not_let_in(site: Any, provider: Provider) -> None:
    provider.refuses = True
    refused(site, back(site, provider), 403, "Example did not let you in")


def test_an_error_of_the_provider_is_shown_by_its_name_only(site: Any, provider: Provider) -> None:
    path = back(site, provider)
    shown = path.partition("?")[0] + "?error=temporarily_unavailable&state=" + query_of(path)["state"]
    refused(site, shown, 400, "temporarily_unavailable")
    path = back(site, provider)
    refused(site, path.partition("?")[0] + "?error=<b>x&state=" + query_of(path)["state"], 400, "with an error: error")


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        (ErrorCode.UNAUTHENTICATED, 401, "The sign-in was not accepted. refused by the coordinator"),
        (ErrorCode.PERMISSION_DENIED, 403, "You are not known here. refused by the coordinator"),
        (ErrorCode.PROVIDER_UNAVAILABLE, 503, "Example cannot be used now. refused by the coordinator"),
        (ErrorCode.RESOURCE_EXHAUSTED, 429, "Try again in 17 s"),
    ],
)
def test_what_a_coordinator_refuses(site: Any, provider: Provider, code: ErrorCode, status: int, text: str) -> None:
    site.cluster.accounts.refusal = TobanError(code, "refused by the coordinator", detail={"retry_after_seconds": 17})
    refused(site, back(site, provider), status, text)


def test_while_the_provider_is_down_passwords_go_on(site: Any, provider: Provider) -> None:
    path = back(site, provider)
    provider.down = True
    refused(site, path, 503, "cannot be used now")
    refused(site, "/sign-in/oidc", 503, "cannot be used now")
    assert 'name="password"' in site.page("/sign-in")


def test_a_token_endpoint_that_fails(site: Any, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    path = back(site, provider)
    monkeypatch.setattr(provider, "codes", {"x": None})
    refused(site, path, 401, "refused the code")


def test_without_passwords_there_is_one_way(site: Any) -> None:
    site.cluster.accounts.passwords_off = True
    page = site.page("/sign-in")
    assert "Sign in with Example" in page and 'name="password"' not in page


def test_a_password_that_is_not_accepted_any_more_is_answered_with_the_reason(site: Any) -> None:
    page = site.page("/sign-in")
    csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
    site.cluster.accounts.refusal = TobanError(ErrorCode.PERMISSION_DENIED, "passwords are switched off")
    form = {"csrf": csrf, "user": "ada", "password": "x"}
    response = site.client.post("/sign-in", data=form, headers={"Origin": "http://localhost"})
    assert response.status_code == 400 and "passwords are switched off" in response.get_data(as_text=True)


def test_a_page_with_any_characters_is_gone_on_to(site: Any, provider: Provider) -> None:
    path = back(site, provider, "/sign-in/oidc?next=/runs?q%3D日本")
    assert site.get(path).headers["Location"] == "/runs?q=%E6%97%A5%E6%9C%AC"


def test_without_a_provider_there_is_no_button(web: Any) -> None:
    assert "/sign-in/oidc" not in web.page("/sign-in")
    assert web.get("/sign-in/oidc").status_code == 404
    assert web.get("/sign-in/oidc/callback?code=a&state=b").status_code == 400


def test_the_first_administrator_may_come_from_the_provider(site: Any, provider: Provider) -> None:
    site.cluster.accounts.administrator = False
    assert "Sign in with Example" in site.page("/first")
    assert site.get(back(site, provider)).status_code == 303
    assert len(tokens(site)) == 1


@pytest.mark.parametrize("tag", ["en", "ja", "zh-Hant"])
def test_the_problems_in_every_language(site: Any, tag: str) -> None:
    page = site.get(f"/sign-in/oidc/callback?lang={tag}").get_data(as_text=True)
    assert f'<html lang="{tag}">' in page and 'role="alert"' in page
