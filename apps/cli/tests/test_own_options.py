"""Mistakes that the site finds are named by the options and arguments of the command, not by the fields of the request."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from toban_cli.own_options import in_options
from toban_domain.errors import ErrorCode, TobanError

Toban = Callable[..., tuple[int, str, str]]
LONG = "x" * 400


@pytest.mark.parametrize("cluster", ["rest"], indirect=True)
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("webhook", "set", "a", "--url", "https://e.example", "--form", "foo"), "--form: use 'generic', 'slack'"),
        (("webhook", "deliveries", "--state", "foo"), "--state: use 'pending'"),
        (("hook", "set", "a", "--kind", "foo", "--type", "x"), "--kind: use 'standard', 'github'"),
        (("event", "emit", ""), "TYPE: is empty; give a value"),
        (("event", "list", "--type", LONG), "--type: has more than 300 characters"),
        (("run", "start", "hello", "--idempotency-key", LONG), "--idempotency-key: has more than 200 characters"),
        (("run", "list", "--origin", "foo"), "--origin: use 'slot'"),
        (("run", "list", "--executor", LONG), "--executor: has more than 300 characters"),
        (("run", "note", "1", ""), "TEXT: is empty; give a value"),
        (("run", "note", "1", LONG * 3), "TEXT: has more than 1000 characters"),
        (("limit", "signal", "pool:x", "foo"), "ok|soft|hard: use 'ok', 'soft' or 'hard'"),
        (("user", "grant", "bob", "boss"), "ROLE: use 'viewer', 'operator'"),
        (("user", "may", "bob", "fly"), "ACTION: use 'view', 'run'"),
        (("user", "link", "bob", "--subject", ""), "--subject: is empty; give a value"),
        (("token", "add", "bob", "x", "--role", "boss"), "--role: use 'viewer', 'operator'"),
        (("token", "add-own", "x", "--role", "boss"), "--role: use 'viewer', 'operator'"),
    ],
)
def test_the_own_option_is_named(cluster: Any, toban: Toban, argv: tuple[str, ...], message: str) -> None:
    code, out, err = toban(*argv)
    assert (code, out) == (65, "") and err.startswith(f"error: {message}") and len(err.splitlines()) == 1
    assert "body." not in err and "query." not in err
    found = json.loads(toban(*argv, "--errors", "json")[2])["error"]
    assert (found["code"], found["exit_code"]) == ("INVALID_ARGUMENT", 65) and found["message"].startswith(message)
    assert found["detail"]["errors"][0]["path"] == message.partition(":")[0]


@pytest.mark.parametrize("cluster", ["direct", "rest"], indirect=True)
@pytest.mark.parametrize("payload", ["[1", "{", "[1]", "3"])
def test_the_message_of_a_hook_is_read_before_it_is_sent(cluster: Any, toban: Toban, payload: str) -> None:
    code, out, err = toban("hook", "test", "repo", "--payload", payload)
    assert (code, out) == (72, "") and err.startswith("error: --payload is ") and cluster.hooks.requests == []


def test_what_no_option_is_for_keeps_its_field() -> None:
    mistakes = [
        {"path": "body.runs.0.color", "message": "Extra inputs are not permitted"},
        {"path": "header If-Match", "message": "is one ETag"},
    ]
    found = in_options(TobanError(ErrorCode.INVALID_ARGUMENT, "body.runs.0.color: x", detail={"errors": mistakes}), [])
    assert found.message == "runs.color: Extra inputs are not permitted (and 1 more)"
    assert [one["path"] for one in found.detail["errors"]] == ["runs.color", "header If-Match"]


@pytest.mark.parametrize("detail", [{}, {"errors": 3}, {"errors": [{"path": "spec.cron", "message": "no"}]}])
def test_other_errors_stay_as_they_are(detail: dict[str, Any]) -> None:
    error = TobanError(ErrorCode.MANIFEST_INVALID, "spec.cron: no", detail=detail)
    assert in_options(error, []) is error
