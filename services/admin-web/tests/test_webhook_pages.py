"""Webhooks on the site: health and deliveries, and that each action names the target and why."""

from __future__ import annotations

import re
from typing import Any

import pytest

from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode
from toban_proto.v1 import webhooks_pb2 as pb
from toban_testing.site_flows import delivery_message, webhook_message

URL = "https://alerts.example.com/toban?token=s3cret"
FORM = {"url": URL, "form": "generic", "state": "FAILED", "jobs": "nightly-load\n\n etl ", "labels": "team=data"}


def test_the_list_has_target_form_filter_and_health(web: Any) -> None:
    webhooks = [
        webhook_message(),
        webhook_message(name="chat", form="slack", states=[], jobs=[], labels={}, status="down"),
    ]
    web.cluster.reader.responses["ListWebhooks"] = pb.ListWebhooksResponse(webhooks=webhooks)
    text = web.page("/webhooks")
    for seen in (
        "https://alerts<wbr>.example<wbr>.com",
        "tries fail",
        "down",
        "Slack",
        "team=data",
        "only what jobs ask for",
    ):
        assert seen in text
    assert 'href="/webhooks/pager"' in text and "the target responded with 500" in text
    web.cluster.reader.responses["ListWebhooks"] = pb.ListWebhooksResponse()
    text = web.page("/webhooks")
    assert "toban webhook set pager" in text and 'href="/new/webhook"' in text


def test_one_webhook_has_its_deliveries(web: Any) -> None:
    deliveries = [
        delivery_message(),
        delivery_message(id=11, run_id=0, state="pending", next_at=web.stamp(-30), status=0, error=""),
    ]
    web.cluster.reader.responses["ListDeliveries"] = pb.ListDeliveriesResponse(deliveries=deliveries, next_cursor="11")
    text = web.page("/webhooks/pager?state=failed&cursor=40")
    request = web.asked(pb.ListDeliveriesRequest)[-1]
    assert (request.webhook, request.state, request.page.cursor) == ("pager", "failed", "40")
    assert 'href="/runs/7"' in text and "/webhooks/pager?state=failed&amp;cursor=11" in text
    assert re.findall(r"redeliver\?id=(\d+)", text) == ["12"], "what waits is not sent again"
    assert re.findall(r'href="/webhooks/pager/([a-z]+)"', text) == [
        "change",
        "test",
        "redeliver",
        "disable",
        "secret",
        "remove",
    ]
    web.page("/webhooks/pager?state=odd")
    assert web.asked(pb.ListDeliveriesRequest)[-1].state == ""
    assert web.get("/webhooks/unknown").status_code == 404
    assert web.get("/webhooks/pager/redeliver?id=abc").status_code == 404, "it is not every failed one"


@pytest.mark.parametrize(
    ("path", "kind", "given", "location"),
    [
        ("test", pb.TestWebhookRequest, {"name": "pager"}, "/webhooks/pager?done=webhook_tested"),
        ("redeliver", pb.RedeliverRequest, {"webhook": "pager", "ids": []}, "/webhooks/pager?done=redelivered"),
        ("redeliver?id=12", pb.RedeliverRequest, {"webhook": "pager", "ids": [12]}, "/webhooks/pager?done=redelivered"),
        (
            "disable",
            pb.SetWebhookRequest,
            {"name": "pager", "enabled": False, "url": ""},
            "/webhooks/pager?done=webhook_disabled",
        ),
        ("enable", pb.SetWebhookRequest, {"name": "pager", "enabled": True}, "/webhooks/pager?done=webhook_enabled"),
        ("remove", pb.RemoveWebhookRequest, {"name": "pager"}, "/webhooks?done=webhook_removed"),
    ],
)
def test_an_action_names_the_webhook_and_why(
    web: Any, path: str, kind: type, given: dict[str, Any], location: str
) -> None:
    response = web.post(f"/webhooks/pager/{path}", reason="moves")
    assert response.location == location
    [request] = web.asked(kind)
    assert request.reason == "moves" and {name: getattr(request, name) for name in given} == given
    if kind is pb.SetWebhookRequest:
        assert request.HasField("enabled") and not request.HasField("filter")
    assert 'class="message good" role="status"' in web.page(location)


def test_the_page_has_the_host_and_says_why_there_is_no_path(web: Any) -> None:
    text = web.page("/webhooks/pager")
    assert "https://alerts.example.com" in text and "shown on no page: with many targets they are the secret" in text


def test_nothing_to_send_again_says_so(web: Any) -> None:
    web.cluster.reader.responses["Redeliver"] = pb.RedeliverResponse()
    assert web.post("/webhooks/pager/redeliver").location == "/webhooks/pager?done=redelivered_none"


def test_a_new_secret_is_shown_once(web: Any) -> None:
    web.cluster.reader.responses["SetWebhook"] = pb.SetWebhookResponse(webhook=webhook_message(), secret="whsec_abc")
    response = web.post("/webhooks/pager/secret", reason="leaked")
    text = response.get_data(as_text=True)
    assert response.status_code == 200 and "whsec_abc" in text and response.headers["Cache-Control"] == "no-store"
    [request] = web.asked(pb.SetWebhookRequest)
    assert request.new_secret and not request.HasField("enabled")
    assert "whsec_abc" not in web.page("/webhooks/pager")


def test_a_webhook_is_made_by_form(web: Any) -> None:
    web.cluster.reader.responses["SetWebhook"] = pb.SetWebhookResponse(webhook=webhook_message(), secret="whsec_new")
    response = web.post("/new/webhook", name="night", reason="night shift", **FORM)
    assert "whsec_new" in response.get_data(as_text=True)
    [request] = web.asked(pb.SetWebhookRequest)
    assert (request.name, request.url, request.form, request.reason) == ("night", URL, "generic", "night shift")
    assert list(request.filter.jobs) == ["nightly-load", "etl"] and dict(request.filter.labels) == {"team": "data"}
    assert list(request.filter.states) == ["FAILED"] and not request.HasField("enabled")
    [(action, token)] = re.findall(
        r'<form class="action" method="post" action="([^"]+)">\s*<input type="hidden" name="csrf" value="([^"]+)">',
        response.get_data(as_text=True),
    )
    tested = web.client.post(action, data={"csrf": token}, headers={"Origin": "http://localhost"})
    assert tested.location == "/webhooks/night?done=webhook_tested", "with one click more"
    assert [one.name for one in web.asked(pb.TestWebhookRequest)] == ["night"]


def test_a_change_keeps_the_address_and_may_leave_no_state(web: Any) -> None:
    page = web.page("/webhooks/pager/change")
    assert re.findall(r'value="([A-Z_]+)" checked', page) == ["FAILED", "TIMED_OUT"]
    assert 'name="url" value=""' in page and "team=data</textarea>" in page
    response = web.post("/webhooks/pager/change", reason="less", form="slack")
    assert response.location == "/webhooks/pager?done=webhook_changed"
    [request] = web.asked(pb.SetWebhookRequest)
    assert (request.url, request.form, list(request.filter.states)) == ("", "slack", ["NONE"])


@pytest.mark.parametrize(
    ("path", "changes", "why"),
    [
        ("/new/webhook", {"name": "pager"}, "This name exists already"),
        ("/new/webhook", {"name": "night", "labels": "team"}, "The labels cannot be read"),
        ("/new/webhook", {"name": "night", "labels": "a=1\na=2"}, "The labels cannot be read"),
        ("/new/webhook", {"name": "night", "reason": ""}, "Give a reason"),
        ("/webhooks/pager/change", {"version": "3"}, "Another person has changed this"),
        ("/webhooks/pager/disable", {"reason": ""}, "Give a reason"),
    ],
)
def test_a_form_that_cannot_be_used_is_not_sent(web: Any, path: str, changes: dict[str, str], why: str) -> None:
    response = web.post(path, **{"reason": "x", **FORM, **changes})
    text = response.get_data(as_text=True)
    assert response.status_code == 400 and why in text
    assert not web.asked(pb.SetWebhookRequest)
    if "labels" in changes:
        assert f"{changes['labels']}</textarea>" in text, "the form is shown as it was filled in"
    if "version" in changes:
        assert 'name="version" value="4"' in text


def test_a_refusal_of_the_coordinator_is_shown_with_the_form(web: Any) -> None:
    web.refuse("SetWebhook", ErrorCode.INVALID_ARGUMENT, "the URL has no host")
    response = web.post("/new/webhook", **{**FORM, "name": "night", "reason": "x", "url": "https:///x"})
    text = response.get_data(as_text=True)
    assert response.status_code == 400 and "the URL has no host" in text and 'value="https:///x"' in text


def test_only_administrators_act(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = SignedIn(user="ed", role="editor")
    monkeypatch.setattr(web.worker.context.gate.people, "person", lambda *_args, **_named: editor)
    text = web.page("/webhooks") + web.page("/webhooks/pager")
    assert "/new/webhook" not in text and "/webhooks/pager/" not in text and "redeliver" not in text
    for path in ("/new/webhook", "/webhooks/pager/change", "/webhooks/pager/test", "/webhooks/pager/secret"):
        assert web.get(path).status_code == 403
