"""Events, webhooks, hooks and the audit through the pages of the site, over a whole stack."""

from __future__ import annotations

import json
import re

import pytest

from toban_stack.stack import Stack
from toban_testing.site_client import signed_in

pytestmark = pytest.mark.e2e


def test_a_hook_and_a_webhook_are_made_and_the_audit_tells_it(stack: Stack) -> None:
    site = signed_in(stack)
    path, text = site.submit("/events/emit", "/events/emit", type="flow.test", payload='{"n": 1}', dedupe="flow-1")
    assert re.fullmatch(r"/events\?type=flow.test&emitted=\d+&done=event_emitted", path) and "flow-1" in text
    assert "flow.test" in site.get("/events") and "<h1>Triggers</h1>" in site.get("/triggers")

    target = {"url": "https://alerts.example.com/toban", "form": "generic", "state": "FAILED", "labels": "team=flows"}
    _, text = site.submit("/new/webhook", "/new/webhook", name="flow-pager", reason="new", **target)
    assert "whsec_" in text
    page = "/webhooks/flow-pager"
    assert "team=flows" in site.get(page) and "whsec_" not in site.get(page)
    assert site.submit(f"{page}/disable", f"{page}/disable", reason="quiet")[0] == f"{page}?done=webhook_disabled"
    assert site.submit(f"{page}/remove", f"{page}/remove", reason="gone")[0] == "/webhooks?done=webhook_removed"

    kept = {"event_type": "flow.hooked", "rate": "60", "kind": "standard"}
    assert "whsec_" in site.submit("/new/hook", "/new/hook", name="flow-shop", reason="new", **kept)[1]
    page = "/incoming/flow-shop"
    assert "whsec_" in site.submit(f"{page}/rotate", f"{page}/rotate", reason="rotate")[1]
    assert "Two secrets are valid" in site.get(page)
    assert "flow.hooked" in site.submit(f"{page}/test", f"{page}/test", payload='{"n": 1}')[1]
    assert site.submit(f"{page}/drop", f"{page}/drop", reason="changed over")[0] == f"{page}?done=hook_dropped"
    assert site.submit(f"{page}/remove", f"{page}/remove", reason="gone")[0] == "/incoming?done=hook_removed"

    assert "flow-shop" in site.get("/audit?target=flow-shop") and "No action matches." in site.get(
        "/audit?target=shop-x"
    )
    rows = [json.loads(line) for line in site.get("/audit/export?target=hook+flow-shop").splitlines()]
    assert {row["action"] for row in rows} == {"hook.set", "hook.remove"} and rows[0]["before"] == ""
    assert "The chain is whole." in site.get("/audit/verify?check=1")
