"""Theme, time zone and language of a page: chosen by a link and kept in a cookie of the browser, or those of the system."""

from __future__ import annotations

import re
from typing import Any

import pytest


@pytest.mark.parametrize(("theme", "scheme"), [("light", "light"), ("dark", "dark")])
def test_a_choice_leads_back_and_is_kept(web: Any, theme: str, scheme: str) -> None:
    page = web.page("/runs?state=FAILED&lang=ja")
    [link] = re.findall(rf'href="([^"]*theme={theme})"', page)
    response = web.get(link.replace("&amp;", "&"))
    assert (response.status_code, response.location) == (303, "/runs?state=FAILED&lang=ja")
    cookie = response.headers["Set-Cookie"]
    assert cookie.startswith(f"toban-theme={theme}") and "HttpOnly" in cookie and "SameSite=Lax" in cookie
    text = web.page("/jobs")
    assert f'data-theme="{theme}"' in text and f'name="color-scheme" content="{scheme}"' in text
    web.get("/jobs?theme=system")
    text = web.page("/jobs")
    assert "data-theme" not in text and 'content="light dark"' in text


def test_before_the_sign_in_too(new_web: Any) -> None:
    away = new_web()
    away.client.delete_cookie("toban-session")
    assert away.get("/sign-in?theme=dark").location == "/sign-in"
    assert 'data-theme="dark"' in away.page("/sign-in")


@pytest.mark.parametrize("path", ["/jobs?theme=pink", "/api/v1/cluster?theme=dark"])
def test_what_is_no_choice_changes_nothing(web: Any, path: str) -> None:
    response = web.get(path)
    assert response.status_code != 303 and "toban-theme" not in response.headers.get("Set-Cookie", "")


def test_a_cookie_of_another_origin_is_no_theme(web: Any) -> None:
    web.client.set_cookie("toban-theme", '"><script>')
    assert "data-theme" not in web.page("/jobs")


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example"])
def test_a_choice_leads_to_no_other_host(web: Any, path: str) -> None:
    # The test client would take the first for the name of a host.
    response = web.client.get("/jobs?theme=dark", environ_overrides={"PATH_INFO": path, "RAW_URI": path})
    assert response.status_code == 303 and re.match(r"/[^/\\\\]", response.headers["Location"])


def test_a_language_is_kept_for_addresses_without_it(web: Any) -> None:
    response = web.get("/?lang=ja", Accept_Language="en")
    cookie = response.headers["Set-Cookie"]
    assert cookie.startswith("toban-language=ja") and "HttpOnly" in cookie and "SameSite=Lax" in cookie
    assert '<html lang="ja">' in web.page("/jobs", Accept_Language="en")
    assert "Set-Cookie" not in web.get("/jobs?lang=ja").headers, "it is kept already"
    assert '<html lang="zh-Hant">' in web.page("/jobs?lang=zh-Hant")
    assert '<html lang="zh-Hant">' in web.page("/jobs", Accept_Language="en")


@pytest.mark.parametrize("path", ["/jobs?lang=fr", "/api/v1/cluster?lang=ja"])
def test_what_is_no_language_is_not_kept(web: Any, path: str) -> None:
    assert "toban-language" not in web.get(path).headers.get("Set-Cookie", "")
    web.client.set_cookie("toban-language", '"><script>')
    assert '<html lang="en">' in web.page("/jobs")


def test_a_time_zone_is_kept_and_leads_back(web: Any) -> None:
    page = web.page("/runs?state=FAILED")
    [link] = re.findall(r'href="([^"]*zone=utc)"', page)
    assert '<html lang="en">' in page
    response = web.get(link.replace("&amp;", "&"))
    assert (response.status_code, response.location) == (303, "/runs?state=FAILED")
    assert response.headers["Set-Cookie"].startswith("toban-zone=utc")
    assert 'data-zone="utc"' in web.page("/jobs")
    web.get("/jobs?zone=local")
    assert '<html lang="en">' in web.page("/jobs")
