"""Headers of every answer, error pages, and what a request may not do."""

from __future__ import annotations

import logging
import re
from typing import Any
from urllib.parse import unquote

import pytest

from toban_admin_web.server.headers import CONTENT_SECURITY_POLICY, HEADERS
from toban_domain.errors import ErrorCode
from toban_observability import metrics
from toban_runtime.clock import SystemClock

ANSWERS = [
    "/",
    "/runs/1",
    "/runs/1/log/stream",
    "/runs/1/log.txt",
    "/static/site.css",
    "/static/none.css",
    "/nope",
    "/jobs?part=1",
]


@pytest.mark.parametrize("path", ANSWERS)
def test_every_answer_has_the_headers(web: Any, path: str) -> None:
    with web.client.get(path) as answer:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert "Set-Cookie" not in answer.headers


def test_the_policy_allows_nothing_inline_and_nothing_foreign() -> None:
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
def test_pages_carry_no_inline_script_or_style(web: Any, path: str) -> None:
    text = web.get(path).get_data(as_text=True)
    assert text.count("<script") == text.count('<script type="module" src="/static/')
    assert "<style" not in text and " style=" not in text and " onclick=" not in text and "javascript:" not in text
    assert "http://" not in text and "https://" not in text


def test_pages_are_never_kept_and_files_are(web: Any) -> None:
    text = web.page("/")
    assert web.get("/").headers["Cache-Control"] == "no-store"
    address = text.partition('rel="stylesheet" href="')[2].partition('"')[0]
    for asked, kept in ((address, True), ("/static/site.css", False)):
        with web.get(asked) as answer:
            assert ("immutable" in answer.headers["Cache-Control"]) is kept


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_the_site_only_reads(web: Any, method: str) -> None:
    answer = getattr(web.client, method)("/runs/1")
    assert answer.status_code == 405 and "only reads" in answer.get_data(as_text=True)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", ""])
def test_other_host_names_are_refused(web: Any, host: str) -> None:
    answer = web.client.get("/", headers={"Host": host}, environ_overrides={"HTTP_HOST": host})
    assert answer.status_code == 421
    assert web.cluster.reader.requests == []


def test_host_names_that_are_listed_are_served(new_web: Any) -> None:
    web = new_web(http_names=("Toban.Example",))
    assert web.client.get("/", headers={"Host": "toban.example:8080"}).status_code == 200
    assert web.client.get("/", headers={"Host": "other.example"}).status_code == 421


def test_a_thing_that_is_not_there(web: Any) -> None:
    web.refuse("GetRun", ErrorCode.RUN_NOT_FOUND, "there is no run 1")
    answer = web.get("/runs/1")
    assert answer.status_code == 404
    assert "there is no run 1" in answer.get_data(as_text=True) and "What to do" in answer.get_data(as_text=True)
    assert web.get("/runs/1/log/stream").status_code == 404 and web.get("/runs/1/log.txt").status_code == 404
    assert web.get("/nope").status_code == 404
    assert "ページがありません" in web.get("/nope", Accept_Language="ja").get_data(as_text=True)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.INVALID_ARGUMENT, 400),
        (ErrorCode.UNIMPLEMENTED, 501),
        (ErrorCode.PERMISSION_DENIED, 502),
        (ErrorCode.INTERNAL, 502),
    ],
)
def test_refusals_of_the_cluster_are_told(web: Any, code: ErrorCode, status: int) -> None:
    web.refuse("ListJobs", code, "what, where & how")
    answer = web.get("/jobs")
    assert answer.status_code == status and "what, where &amp; how" in answer.get_data(as_text=True)


def test_a_cluster_that_is_away(web: Any) -> None:
    web.cluster.stop_coordinator()
    answer = web.get("/jobs")
    text = answer.get_data(as_text=True)
    assert answer.status_code == 503 and answer.headers["Retry-After"] == "5"
    assert "The cluster does not answer" in text and web.cluster.coordinator in text and "make up" in text
    assert '<meta http-equiv="refresh" content="5">' in text
    part = web.get("/jobs?part=1")
    assert part.status_code == 503 and part.mimetype == "text/plain"


def test_a_cluster_that_is_silent_costs_the_seconds_of_a_request(new_web: Any) -> None:
    web = new_web(request_seconds=0.5)
    web.cluster.reader.silent = True
    clock = SystemClock()
    began = clock.monotonic()
    answer = web.get("/")
    assert answer.status_code == 503 and clock.monotonic() - began < 5


def test_a_silent_coordinator_is_left_for_one_that_answers(new_web: Any, cluster: Any, tls: Any) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        web = new_web(coordinators=(f"127.0.0.1:{deaf.getsockname()[1]}", cluster.coordinator))
        assert "hello" in web.page("/jobs")


def test_a_mistake_of_ours_shows_an_id_and_nothing_else(web: Any, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_seconds: float) -> Any:
        raise RuntimeError("inner detail")

    site = web.running.site
    object.__setattr__(site, "open_reader", broken)
    with caplog.at_level(logging.ERROR):
        answer = web.get("/")
    text = answer.get_data(as_text=True)
    assert answer.status_code == 500 and "inner detail" not in text
    error_id = text.partition("Error ")[2].partition(".")[0]
    assert error_id and error_id in caplog.text and "inner detail" in caplog.text


def test_requests_are_counted_by_view(web: Any) -> None:
    web.get("/runs/1")
    web.get("/nope/" + "x" * 50)
    text = metrics.exposition().decode()
    assert 'toban_site_requests_total{status="200",view="runs.show"}' in text
    assert 'toban_site_requests_total{status="404",view="none"}' in text
    assert "nope" not in text and "/runs" not in text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/runs/9223372036854775807", 200),
        ("/runs/9223372036854775808", 404),
        (f"/runs/{'9' * 3000}", 404),
        (f"/runs/{'9' * 5000}/log/stream", 404),
        ("/runs/%D9%A1", 404),
        ("/runs/1/log/stream?after=1:9223372036854775807", 200),
        (f"/runs/1/log/stream?after=1:{'9' * 5000}", 200),
        ("/jobs/%00", 400),
        ("/jobs?cursor=%00", 400),
        ("/schedules/a%00b", 400),
        ("/runs?job=%00", 400),
    ],
)
def test_numbers_and_names_that_nothing_has(web: Any, path: str, status: int) -> None:
    web.cluster.write(sealed=True)
    web.cluster.reader.answers["GetRun"] = web.run(1, "SUCCEEDED", finished_at=web.stamp(100))
    with web.get(path) as answer:
        assert answer.status_code == status
        if status == 200:
            assert answer.get_data()


def test_a_last_event_id_of_five_thousand_digits_starts_from_the_start(web: Any) -> None:
    web.cluster.write(sealed=True)
    web.cluster.reader.answers["GetRun"] = web.run(1, "SUCCEEDED", finished_at=web.stamp(100))
    with web.get("/runs/1/log/stream", Last_Event_ID=f"{'9' * 5000}:1") as answer:
        assert answer.status_code == 200 and b"line 1" in answer.get_data()


@pytest.mark.parametrize(
    "path", ["/%5Cevil.com", "//evil.com", "///evil.com", "/%5C%5Cevil.com", "/%2Fevil.com", "/a%22b"]
)
def test_links_of_a_page_stay_on_this_site(web: Any, path: str) -> None:
    answer = web.client.get("/", environ_overrides={"PATH_INFO": unquote(path)})
    assert answer.status_code == 404
    links = re.findall(r'href="([^"]*)"', answer.get_data(as_text=True))
    assert len(links) > 6 and any("evil.com?lang=ja" in link or "b?lang=ja" in link for link in links)
    assert all(re.match(r"#|/(?![/\\])", link) for link in links), links
