"""JSON texts of the cluster, parsed for a page."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from toban_admin_web.decide.json_fields import Progress, indent, parse_health, parse_progress


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", None),
        ("[]", None),
        ("{", None),
        ("[" * 5000, None),
        ('{"percentage": true}', None),
        ('{"percentage": 140, "summary": "x"}', Progress(100.0, "x")),
        ('{"percentage": -1}', Progress(0.0, "")),
        ('{"summary": 7, "percentage": 40.5}', Progress(40.5, "")),
        ('{"summary": "only text"}', Progress(None, "only text")),
    ],
)
def test_progress(text: str, seen: Progress | None) -> None:
    assert parse_progress(text) == seen


@pytest.mark.parametrize("levels", [450, 900, 5000])
def test_json_nested_too_deeply_is_returned_unchanged(levels: int) -> None:
    deep = "[" * levels + "]" * levels
    assert "".join(indent(deep).split()) == deep


def test_health_documents() -> None:
    status, checks = parse_health(
        '{"status": "ok", "checks": {"a": {"status": "ok", "value": -0.0}, "b": {"status": "ok", "value": '
        '{"not_after": "2036-11-18T14:28:17+00:00", "serial": "' + "f" * 40 + '"}}, "c": 7}}'
    )
    assert status == "ok" and [check.name for check in checks] == ["a", "b"]
    assert checks[0].values == (("", "0"),)
    assert checks[1].values == (("not_after", datetime(2036, 11, 18, 14, 28, 17, tzinfo=UTC)),)
    assert parse_health("garbage") == ("unknown", [])
