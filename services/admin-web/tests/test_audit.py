"""The audit: what a row changed, the filters, the export, and the check of the hash chain."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from toban_admin_web.ports.people import SignedIn
from toban_admin_web.views.cluster import audit
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb

EVIL = "<script>alert('x')</script>"
HEAD = "1205:" + "6f" * 32


def test_the_audit_shows_who_did_what_and_from_where(web: Any) -> None:
    text = web.page("/audit?actor=user+ada&address=203.0.113.7&cursor=9")
    for seen in (
        "user ada",
        "203.0.113.7",
        "admin-web",
        "drain",
        "executor 5 (host-a)",
        "wrong input",
        '<span class="went">- drained: false</span><span class="came">+ drained: true</span>',
        "not in the hash chain yet",
    ):
        assert seen in text
    link = '<a href="/audit?actor=user+ada&amp;address=203.0.113.7&amp;action=drain" title="drain" lang="en">drain</a>'
    assert link in text, "the stored name is a click away"
    request = web.asked(pb.ListAuditRequest)[-1]
    assert (request.actor, request.address, request.page.cursor) == ("user ada", "203.0.113.7", "9")
    assert "/audit?actor=user+ada&amp;address=203.0.113.7&amp;cursor=3" in text
    assert 'href="/audit/export?actor=user+ada&amp;address=203.0.113.7"' in text


def test_hostile_texts_are_no_markup(web: Any) -> None:
    evil = web.audit_entry(
        actor=EVIL, target=EVIL, reason=EVIL, address=EVIL, before_json=json.dumps({EVIL: EVIL}), seq=1
    )
    web.cluster.reader.responses["ListAudit"] = pb.ListAuditResponse(entries=[evil])
    web.cluster.reader.responses["VerifyAudit"] = pb.VerifyAuditResponse(
        problems=[pb.AuditProblem(kind=EVIL, first_seq=1, last_seq=2, message=EVIL)], head=EVIL, anchor=EVIL
    )
    for path in ("/audit?cursor=x", "/audit/verify?check=1&head=" + EVIL):
        assert "<script>alert" not in web.page(path)
    assert web.asked(pb.ListAuditRequest)[-1].page.cursor == ""
    assert "not in the hash chain yet" not in web.page("/audit")


def test_an_empty_audit_and_a_refused_one(web: Any) -> None:
    web.cluster.reader.responses["ListAudit"] = pb.ListAuditResponse()
    assert "No action matches." in web.page("/audit") and "Show all actions" in web.page("/audit?action=job")
    refused = TobanError(ErrorCode.PERMISSION_DENIED, "bob may not operate here", detail={"user": "bob"})
    web.cluster.reader.responses["ListAudit"] = refused
    response = web.get("/audit")
    assert response.status_code == 403 and "bob may not operate here" in response.get_data(as_text=True)


def test_filters_are_sent_as_they_are_typed(web: Any) -> None:
    for name, text in (("actor", "alice"), ("actor", "user alice"), ("action", "job"), ("target", "nightly-load")):
        web.page(f"/audit?{name}={text}")
        assert getattr(web.asked(pb.ListAuditRequest)[-1], name) == text
    web.page("/audit?since=2026-11-29T18:00&until=soon")
    request = web.asked(pb.ListAuditRequest)[-1]
    assert request.since.ToJsonString() == "2026-11-29T18:00:00Z" and not request.HasField("until")


def test_an_export_keeps_the_text_that_the_hash_covers(web: Any) -> None:
    pages = {
        "": pb.ListAuditResponse(entries=[web.audit_entry(before_json='{"a":  1.0}', seq=1)], next_cursor="4"),
        "4": pb.ListAuditResponse(entries=[web.audit_entry(id=5, after_json="", seq=2, reason="夜間")]),
    }
    web.cluster.reader.responses["ListAudit"] = lambda request: pages[request.page.cursor]
    response = web.get("/audit/export?action=drain&since=2026-11-29T18:00")
    assert response.headers["Content-Disposition"].startswith('attachment; filename="audit-')
    first, second = map(json.loads, response.get_data(as_text=True).splitlines())
    assert (first["before"], first["seq"], second["after"], second["reason"]) == ('{"a":  1.0}', 1, "", "夜間")
    assert list(first)[:3] == ["seq", "id", "at"] and re.fullmatch(r"\d{4}-.*\.\d{6}\+00:00", first["at"])
    requests = web.asked(pb.ListAuditRequest)
    assert all(one.oldest_first and one.action == "drain" and one.HasField("since") for one in requests)


def test_an_export_that_is_cut_says_so(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = pb.ListAuditResponse(entries=[web.audit_entry()], next_cursor="4")
    web.cluster.reader.responses["ListAudit"] = page
    monkeypatch.setattr(audit, "MOST_ROWS", 2)
    with web.get("/audit/export") as response:
        lines = response.get_data(as_text=True).splitlines()
    assert web.worker.context.stream_slots.usage()[0] == 0
    assert len(lines) == 3 and "after 2 rows" in json.loads(lines[-1])["incomplete"]

    def fail_later(request: Any) -> Any:
        if request.page.cursor:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, "the cursor is none")
        return page

    web.cluster.reader.responses["ListAudit"] = fail_later
    with web.get("/audit/export") as response:
        assert "the cursor is none" in response.get_data(as_text=True).splitlines()[-1]


def test_a_whole_chain_a_broken_one_and_a_long_one(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "The chain is whole." not in web.page("/audit/verify") and not web.asked(pb.VerifyAuditRequest)
    text = web.page(f"/audit/verify?check=1&head={HEAD}")
    assert "The chain is whole." in text and "Rows checked: 1201." in text and HEAD in text
    assert web.asked(pb.VerifyAuditRequest)[-1].known_head == HEAD
    problem = pb.AuditProblem(kind="removed", first_seq=430, last_seq=433, message="rows 430 to 433 are missing")
    parts = {
        "": pb.VerifyAuditResponse(rows=20, problems=[problem], next_cursor="20:aa"),
        "20:aa": pb.VerifyAuditResponse(rows=7),
    }
    web.cluster.reader.responses["VerifyAudit"] = lambda request: parts[request.cursor]
    text = web.page("/audit/verify?check=1")
    assert "The chain is broken. Problems: 1." in text and "430 – 433" in text and "Rows checked: 27." in text
    monkeypatch.setattr(audit, "CHECK_SECONDS", -1)
    parts[""].ClearField("problems")
    text = web.page("/audit/verify?check=1")
    assert "not at the end yet" in text and "/audit/verify?check=1&amp;cursor=20:aa" in text


def test_a_head_that_is_none_is_refused_beside_the_field(web: Any) -> None:
    web.refuse("VerifyAudit", ErrorCode.INVALID_ARGUMENT, "known_head is not SEQ:HASH")
    response = web.get("/audit/verify?check=1&head=x")
    text = response.get_data(as_text=True)
    assert response.status_code == 400 and "known_head is not SEQ:HASH" in text and 'value="x"' in text


def test_only_administrators_export_and_check(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = SignedIn(user="ed", role="editor")
    monkeypatch.setattr(web.worker.context.gate.people, "person", lambda *_args, **_named: editor)
    for path in ("/audit/export", "/audit/verify", "/audit/verify?check=1"):
        assert web.get(path).status_code == 403
    assert not web.asked(pb.ListAuditRequest) and not web.asked(pb.VerifyAuditRequest)
