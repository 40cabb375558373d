"""`toban audit list`: pages, and the changes between two states."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toban_cli.commands.audit import changes
from toban_proto.v1 import coordinator_pb2 as pb


def test_the_audit_log_is_read_by_pages(cluster: Any, toban: Any) -> None:
    entries = [
        pb.AuditEntry(id=number, actor="admin-cli", action="drain", target="executor 5 (host-a)", reason="disk")
        for number in range(900, 0, -1)
    ]

    def page(request: pb.ListAuditRequest) -> pb.ListAuditResponse:
        start = 900 - int(request.page.cursor or 901) + 1
        found = entries[start : start + request.page.limit]
        more = str(found[-1].id) if start + len(found) < len(entries) else ""
        return pb.ListAuditResponse(entries=found, next_cursor=more)

    cluster.operations.answers["ListAudit"] = page
    code, out, _ = toban("audit", "list", "--limit", "800", "-o", "name")
    assert (code, out.split()) == (0, [str(number) for number in range(900, 100, -1)])
    assert [one.page.limit for one in cluster.operations.requests] == [500, 300]
    cluster.operations.answers["ListAudit"] = pb.ListAuditResponse()
    assert toban("audit", "list")[1] == "No operator has changed anything yet.\n"


@pytest.mark.seed(65)
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({}, {}, ""),
        (
            {},
            {"spec": {"job": "a", "cron": "0 3 * * *"}, "version": 1},
            "spec.job: a, spec.cron: 0 3 * * *, version: 1",
        ),
        ({"drained": False}, {"reason": "", "drained": True}, "drained: false → true"),
        ({"epoch": 7, "address": "h:1"}, {}, "epoch: 7, address: h:1"),
        (
            {"spec": {"job": "a"}, "status": "active", "version": 1},
            {"status": "paused", "version": 2, "after": "12:00"},
            "after: 12:00, status: active → paused, version: 1 → 2",
        ),
        (
            {"spec": {"job": "a", "retry": {"max_retries": 2}, "timeout_seconds": 5}},
            {"spec": {"job": "a", "retry": {"max_retries": 3}, "argv": ["x"]}},
            'spec.retry.max_retries: 2 → 3, spec.timeout_seconds: 5 → none, spec.argv: none → ["x"]',
        ),
    ],
)
def test_what_an_operator_changed(before: dict[str, Any], after: dict[str, Any], words: str) -> None:
    assert changes(json.dumps(before), json.dumps(after)) == words


def test_what_is_no_json_object_is_no_change() -> None:
    assert changes("", "no json") == "" and changes("[1]", '{"a": {}}') == ""


def test_the_audit_log_shows_the_change(cluster: Any, toban: Any) -> None:
    entry = pb.AuditEntry(
        id=1,
        action="setting.update",
        target="assign_ahead_seconds",
        before_json='{"value": 30}',
        after_json='{"value": 60}',
    )
    cluster.operations.answers["ListAudit"] = pb.ListAuditResponse(entries=[entry])
    code, out, _ = toban("audit", "list", "-o", "wide")
    assert code == 0 and "value: 30 → 60" in out
