"""Requests of jobs: those that are markers, and those that are no request."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from toban.job import JobError
from toban.testing import FakeJob
from toban_executor.decide.job_protocol import ProtocolError, parse, parse_marker

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("line", [b"::heartbeat::", b"::heartbeat:: \r", b"::progress 40 half way::"])
def test_a_marker_is_a_sign_of_life(line: bytes) -> None:
    """The content of a progress marker is read from the log."""
    found = parse_marker(line, NOW)
    assert found is not None and (found.op, found.progress) == ("heartbeat", None)


@pytest.mark.parametrize("line", [b"::progress much::", b"::output", b"heartbeat", b"::heartbeat"])
def test_other_lines_are_no_markers(line: bytes) -> None:
    assert parse_marker(line, NOW) is None


def test_an_unknown_op_is_named_in_brief() -> None:
    with pytest.raises(ProtocolError, match="unknown op") as caught:
        parse(b'{"op": "%s"}' % (b"x" * 100_000), NOW)
    assert len(str(caught.value)) < 200


class Sent(FakeJob):
    """A job in memory that keeps the last request, as it goes to an executor."""

    line = b""

    def _exchange(self, line: bytes, _until: float) -> dict[str, Any]:
        self.line = line
        return super()._exchange(line, _until)


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("progress", {"percentage": 0}),
        ("progress", {"percentage": 100, "summary": "x", "eta_seconds": 366 * 86_400}),
        ("progress", {"done": 0, "total": 1}),
        ("progress", {"done": 10**15, "total": 10**15}),
        ("progress", {"done": 10**15, "total": 10**15 + 1}),
        ("progress", {"percentage": 5, "eta_seconds": 366 * 86_400 + 1}),
        ("progress", {"percentage": 100.1}),
        ("progress", {"percentage": "5"}),
        ("progress", {"percentage": True}),
        ("progress", {"percentage": 5, "total": 3}),
        ("progress", {"done": 1.5, "total": 3}),
        ("progress", {"done": 1, "total": 0}),
        ("progress", {"percentage": 5, "summary": 7}),
        ("output", {"value": "x" * (32 * 1024 - 8)}),
        ("output", {"value": "x" * (32 * 1024 - 7)}),
        ("checkpoint", {"value": "é" * 16_380}),
        ("checkpoint", {"value": "é" * 16_381}),
        ("output", {"value": "\ud800"}),
        ("output", {"value": "a\x00"}),
        ("output", {"value": "a\\u0000"}),
    ],
)
def test_a_job_in_memory_refuses_what_an_executor_refuses(op: str, fields: dict[str, Any]) -> None:
    job = Sent()
    try:
        job._request(op, **fields)
        refused = False
    except JobError:
        refused = True
    try:
        parse(job.line.rstrip(), NOW)
        assert not refused
    except ProtocolError:
        assert refused


def test_what_jobs_send_is_json() -> None:
    job = Sent()
    job.progress(done=1, total=2, summary="half")
    assert json.loads(job.line) == {"op": "progress", "done": 1, "total": 2, "summary": "half"}
