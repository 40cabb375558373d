"""`toban audit`: pages, filters, the changes between two states, exports and the check of the hash chain."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from toban_cli.commands.audit import changes
from toban_domain.audit_chain import START, Link
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
    assert toban("audit", "list")[1] == "The audit has no such action.\n"


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


def chained(count: int) -> list[pb.AuditEntry]:
    """Rows as a coordinator gives them, oldest first, and one that is not chained yet."""
    entries, previous = [], START.hash
    for seq in range(1, count + 1):
        at = datetime(2026, 11, 23, 9, 0, seq, 123456, UTC)
        values = {"actor": "user ada", "action": "run.cancel", "target": f"run {seq}", "reason": "夜\u2028間\x1b[2J"}
        link = Link(
            seq=seq,
            id=seq,
            at=at,
            before='{"state": "PENDING"}',
            after="",
            address="::1",
            service="",
            hash=b"",
            **values,
        )
        previous = link.hash_after(previous)
        entry = pb.AuditEntry(seq=seq, id=seq, before_json=link.before, address="::1", hash=previous.hex(), **values)
        entry.at.FromDatetime(at)
        entries.append(entry)
    return [*entries, pb.AuditEntry(id=count + 1, actor="=cmd()", reason="-1", action="run.start", at=entries[-1].at)]


def serve(cluster: Any, entries: list[pb.AuditEntry]) -> None:
    def page(request: pb.ListAuditRequest) -> pb.ListAuditResponse:
        assert request.oldest_first
        found = [entry for entry in entries if entry.id > int(request.page.cursor or 0)][:2]
        return pb.ListAuditResponse(entries=found, next_cursor=str(found[-1].id) if found[-1] != entries[-1] else "")

    cluster.operations.answers["ListAudit"] = page


def test_the_log_is_filtered(cluster: Any, toban: Any) -> None:
    cluster.operations.answers["ListAudit"] = pb.ListAuditResponse(
        entries=[pb.AuditEntry(id=1, actor="user ada", address="203.0.113.7", service="admin-web")]
    )
    given = ["--actor", "user ada", "--action", "run.cancel", "--target", "run 7", "--from", "203.0.113.7"]
    code, out, _ = toban("audit", "list", *given, "--since", "2026-11-23T09:00:00Z", "--until", "1h", "-o", "wide")
    [request] = cluster.operations.requests
    assert code == 0 and "203.0.113.7" in out and "admin-web" in out
    assert (request.actor, request.action, request.target, request.address) == (
        "user ada",
        "run.cancel",
        "run 7",
        "203.0.113.7",
    )
    assert request.since.ToJsonString() == "2026-11-23T09:00:00Z" and request.until.seconds > 0
    code, _, err = toban("audit", "list", "--since", "yesterday")
    assert code != 0 and "--since: 'yesterday' is not a time" in err


def test_an_export_is_verified_without_a_cluster(
    cluster: Any, toban: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = chained(5)
    serve(cluster, entries)
    code, out, _ = toban("audit", "export")
    assert code == 0 and len(out.splitlines()) == 6 and out.isascii()
    whole, head = tmp_path / "whole.jsonl", f"5:{entries[4].hash}"
    whole.write_text(out)
    code, text, _ = toban("audit", "verify", "--file", str(whole), "--head", head)
    assert (code, text) == (0, f"5 rows: the chain is whole\nHead: {head}\n")
    code, text, _ = toban("audit", "verify", "--file", str(whole), "--head", f"5:{'00' * 32}")
    assert code == 1 and "no row has the number and hash" in text
    lines = out.splitlines()
    for changed, said in (
        ([*lines[:2], lines[2].replace("run 3", "run 4"), *lines[3:]], "changed: row 3 does not fit its hash"),
        (lines[:1] + lines[3:], "removed: rows 2 to 3 are missing"),
    ):
        whole.write_text("\n".join(changed))
        code, text, _ = toban("audit", "verify", "-f", str(whole))
        assert code == 1 and said in text and "1 problem in" in text
    whole.write_text("\n".join([lines[1], lines[0], *lines[2:]]))
    assert toban("audit", "verify", "-f", str(whole))[0] == 0, "by id, not by place in the chain"
    whole.write_text("\n".join(lines[2:]))
    assert toban("audit", "verify", "-f", str(whole))[0] == 0, "older rows were past their retention"
    for given, expected, said in (
        (out, 0, "5 rows: the chain is whole"),
        ("no row", 65, "-, line 1 is no row of the audit"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        code, text, err = toban("audit", "verify", "--file", "-")
        assert code == expected and said in text + err


@pytest.mark.parametrize("text", ["no json", "[]", '{"seq": 1}', '{"at": "x", "hash": ""}'])
def test_a_file_that_is_no_export(toban: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    code, _, err = toban("audit", "verify", "--file", str(path))
    assert code != 0 and "line 1 is no row of the audit; give a file of `toban audit export`" in err
    code, _, err = toban("audit", "verify", "--file", str(tmp_path / "none"))
    assert code != 0 and "cannot be read" in err


def test_an_export_for_spreadsheets(cluster: Any, toban: Any) -> None:
    serve(cluster, chained(2))
    code, out, _ = toban("audit", "export", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and [row["target"] for row in rows] == ["run 1", "run 2", ""]
    assert (rows[0]["at"], rows[0]["before"]) == ("2026-11-23T09:00:01.123456+00:00", '{"state": "PENDING"}')
    assert (rows[2]["actor"], rows[2]["reason"]) == ("'=cmd()", "'-1"), "no formula"
    assert "\x1b" not in out


def test_a_verification_goes_through_all_parts(cluster: Any, toban: Any) -> None:
    head = f"9:{'ab' * 32}"
    parts = {
        "": pb.VerifyAuditResponse(rows=5, next_cursor="5:x", head=head),
        "5:x": pb.VerifyAuditResponse(rows=4, head=head, anchor=f"2:{'cd' * 32}", unchained=1, unchained_seconds=3.2),
    }
    cluster.operations.answers["VerifyAudit"] = lambda request: parts[request.cursor]
    code, out, _ = toban("audit", "verify", "--head", "4:y")
    assert code == 0
    assert out.splitlines() == [
        "9 rows: the chain is whole",
        f"Head: {head}",
        "Rows up to 2 were deleted after audit_retention_days.",
        "Not chained yet: 1 row, the oldest since 3 s",
    ]
    assert [one.known_head for one in cluster.operations.requests] == ["4:y", ""]
    problem = pb.AuditProblem(kind="removed", first_seq=6, last_seq=7, message="rows 6 to 7 are missing")
    parts["5:x"] = pb.VerifyAuditResponse(rows=2, head=head, problems=[problem])
    code, out, _ = toban("audit", "verify")
    assert code == 1 and out.startswith("removed: rows 6 to 7 are missing\n1 problem in 7 rows\n")
