"""Security and cache headers."""

from __future__ import annotations

from typing import Any

import pytest

from toban_admin_web.server.app import CONTENT_SECURITY_POLICY, HEADERS

PATHS = [
    "/",
    "/runs/1",
    "/runs/1/log/stream",
    "/runs/1/log.txt",
    "/static/site.css",
    "/static/none.css",
    "/nope",
    "/jobs?part=1",
    "/api/docs",
]


@pytest.mark.parametrize("path", PATHS)
def test_every_response_has_the_headers(web: Any, path: str) -> None:
    with web.client.get(path) as response:
        assert {name: response.headers.get(name) for name in HEADERS} == HEADERS
        assert "Set-Cookie" not in response.headers


def test_the_policy_allows_no_inline_code_and_no_other_host() -> None:
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none';")
    assert "unsafe" not in CONTENT_SECURITY_POLICY and "http" not in CONTENT_SECURITY_POLICY
    for part in (
        "script-src 'self'",
        "style-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'self'",
    ):
        assert part in CONTENT_SECURITY_POLICY


@pytest.mark.parametrize("path", ["/", "/runs", "/runs/1", "/jobs/hello", "/nope"])
def test_pages_have_no_inline_script_or_style(web: Any, path: str) -> None:
    text = web.get(path).get_data(as_text=True)
    assert text.count("<script") == text.count('<script type="module" src="/static/')
    assert "<style" not in text and " style=" not in text and " onclick=" not in text and "javascript:" not in text
    assert "http://" not in text and "https://" not in text


def test_caches_store_static_files_and_no_pages(web: Any) -> None:
    text = web.page("/")
    assert web.get("/").headers["Cache-Control"] == "no-store"
    address = text.partition('rel="stylesheet" href="')[2].partition('"')[0]
    for requested, cached in ((address, True), ("/static/site.css", False)):
        with web.get(requested) as response:
            assert ("immutable" in response.headers["Cache-Control"]) is cached
