"""The error pages."""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest

from toban_domain.errors import ErrorCode
from toban_runtime.clock import SystemClock


def test_an_object_that_does_not_exist(web: Any) -> None:
    web.refuse("GetRun", ErrorCode.RUN_NOT_FOUND, "there is no run 1")
    response = web.get("/runs/1")
    assert response.status_code == 404
    assert "there is no run 1" in response.get_data(as_text=True) and "What to do" in response.get_data(as_text=True)
    assert web.get("/runs/1/log/stream").status_code == 404 and web.get("/runs/1/log.txt").status_code == 404
    assert web.get("/nope").status_code == 404
    assert "ページが見つかりません" in web.get("/nope", Accept_Language="ja").get_data(as_text=True)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.INVALID_ARGUMENT, 400),
        (ErrorCode.UNIMPLEMENTED, 501),
        (ErrorCode.PERMISSION_DENIED, 502),
        (ErrorCode.INTERNAL, 502),
    ],
)
def test_errors_of_the_cluster_are_shown(web: Any, code: ErrorCode, status: int) -> None:
    web.refuse("ListJobs", code, "what, where & how")
    response = web.get("/jobs")
    assert response.status_code == status and "what, where &amp; how" in response.get_data(as_text=True)


def test_an_unreachable_cluster(web: Any) -> None:
    web.cluster.stop_coordinator()
    response = web.get("/jobs")
    text = response.get_data(as_text=True)
    assert response.status_code == 503 and response.headers["Retry-After"] == "5"
    assert "The cluster does not respond" in text and web.cluster.coordinator in text and "toban dev" in text
    assert '<meta http-equiv="refresh" content="5">' in text
    part = web.get("/jobs?part=1")
    assert part.status_code == 503 and part.mimetype == "text/plain"


def test_a_cluster_without_a_response_takes_the_seconds_of_a_request(new_web: Any, at_most: Any) -> None:
    web = new_web(request_seconds=0.5)
    web.cluster.reader.silent = True
    clock = SystemClock()
    began = clock.monotonic()
    response = web.get("/")
    assert response.status_code == 503 and clock.monotonic() - began < at_most(5)


def test_a_coordinator_without_a_response_is_skipped(new_web: Any, cluster: Any, tls: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        web = new_web(coordinators=(f"127.0.0.1:{silent.getsockname()[1]}", cluster.coordinator))
        assert "hello" in web.page("/jobs")


def test_an_internal_error_shows_its_id_only(web: Any, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_credential: Any) -> Any:
        raise RuntimeError("inner detail")

    object.__setattr__(web.worker.context, "open_caller", broken)
    with caplog.at_level(logging.ERROR):
        response = web.get("/")
    text = response.get_data(as_text=True)
    assert response.status_code == 500 and "inner detail" not in text
    error_id = text.partition("Error ")[2].partition(".")[0]
    assert error_id and error_id in caplog.text and "inner detail" in caplog.text
