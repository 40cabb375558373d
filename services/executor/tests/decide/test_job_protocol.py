"""Requests of jobs: those that are markers, and those that are no request."""

from datetime import UTC, datetime

import pytest

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
