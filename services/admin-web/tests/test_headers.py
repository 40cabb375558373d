"""Security and cache headers."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from toban_admin_web.server.app import CONTENT_SECURITY_POLICY, HEADERS

PATHS = [
    "/",
    "/runs/1",
    "/runs/1/log/stream",
    "/runs/1/log.txt",
    "/static/components.css",
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
    for requested, cached in ((address, True), ("/static/components.css", False)):
        with web.get(requested) as response:
            assert ("immutable" in response.headers["Cache-Control"]) is cached


def opened(web: Any, path: str, **headers: str) -> tuple[str | None, bytes]:
    """How an answer came, and what it was."""
    with web.get(path, Accept_Encoding="gzip, br", **headers) as response:
        assert response.status_code == 200
        encoding = response.headers.get("Content-Encoding")
        body = response.get_data()
        assert response.headers["Content-Length"] == str(len(body))
        assert encoding is None or "Accept-Encoding" in response.headers["Vary"]
    return encoding, gzip.decompress(body) if encoding else body


def test_answers_are_compressed_for_clients_that_take_it(web: Any) -> None:
    for path in ("/", "/jobs/hello", "/runs?part=1", "/api/v1/runs/1", "/static/components.css", "/static/keys.js"):
        encoding, body = opened(web, path)
        with web.get(path) as plain:
            assert encoding == "gzip" and "Content-Encoding" not in plain.headers
            # The age of a time may have changed.
            assert len(body) == pytest.approx(len(plain.get_data()), rel=0.01)
    with web.get("/static/components.css", Accept_Encoding="gzip;q=0") as response:
        assert "Content-Encoding" not in response.headers
    with web.get("/static/components.css", Accept_Encoding="gzip", Range="bytes=0-9") as response:
        assert response.status_code == 206 and len(response.get_data()) == 10


def test_a_compressed_file_that_a_client_has_is_not_sent_again(web: Any) -> None:
    with web.get("/static/components.css", Accept_Encoding="gzip") as response:
        tag = response.headers["ETag"]
    with web.get("/static/components.css", Accept_Encoding="gzip", If_None_Match=tag) as response:
        assert response.status_code == 304


@pytest.mark.parametrize("path", ["/account", "/jobs/hello/run", "/new/job", "/api/v1/session", "/runs/1/cancel"])
def test_what_has_a_token_of_the_session_is_not_compressed(web: Any, path: str) -> None:
    assert opened(web, path)[0] is None


def test_the_long_page_about_the_api_has_no_token_and_is_compressed(web: Any) -> None:
    assert opened(web, "/api/docs")[0] == "gzip" and "csrf" not in web.page("/api/docs").partition("<main")[2][:3000]


def test_neither_is_the_answer_to_a_form_nor_a_stream(web: Any) -> None:
    with web.get("/runs/1/log.txt", Accept_Encoding="gzip") as response:
        assert "Content-Encoding" not in response.headers
    page = web.page("/runs/1/cancel")
    token = page.partition('name="csrf" value="')[2].partition('"')[0]
    headers = {"Origin": "http://localhost", "Accept-Encoding": "gzip"}
    answer = web.client.post("/runs/1/cancel", data={"csrf": token}, headers=headers)
    assert answer.status_code == 400 and "Content-Encoding" not in answer.headers
