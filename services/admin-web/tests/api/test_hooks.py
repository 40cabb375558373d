"""Routes about webhooks in both directions: what they ask of the coordinators."""

from __future__ import annotations

from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import hooks_pb2, webhooks_pb2

PATH = "/hooks/repo"


def test_a_hook_is_made_listed_tested_and_removed(api: Any) -> None:
    made = hooks_pb2.SetHookResponse(hook=hooks_pb2.Hook(name="repo", kind="github"), secret="s")
    api.further.answers["SetHook"] = made
    body = {"kind": "github", "mapping": {"events": {"push": "git.push"}, "fields": ["ref"]}, "reason": "r"}
    assert api.put(PATH, body).json["secret"] == "s"
    request = api.further.last
    assert (request.name, request.kind, dict(request.mapping.events), list(request.mapping.fields)) == (
        "repo",
        "github",
        {"push": "git.push"},
        ["ref"],
    )
    assert not request.HasField("enabled") and request.reason == "r"
    assert api.put(PATH, {"enabled": False}).status_code == 200
    assert api.further.last.HasField("enabled") and not api.further.last.HasField("mapping")
    assert api.get("/hooks").json["hooks"][0]["name"] == "x"
    assert api.get("/hooks/x").json["mapping"]["events"] == {} and api.further.last.name == "x"
    api.further.answers["TestHook"] = hooks_pb2.TestHookResponse(result="accepted", payload_json='{"a": 1}')
    assert api.post(f"{PATH}/test", {"value": "push", "payload": {"a": 1}}).json["payload"] == {"a": 1}
    assert (api.further.last.value, api.further.last.payload_json) == ("push", '{"a": 1}')
    assert api.ask("DELETE", f"{PATH}?reason=old").status_code == 200 and api.further.last.reason == "old"


def test_a_hook_that_is_not_there_or_not_valid(api: Any) -> None:
    api.refuse("ListHooks", TobanError(ErrorCode.NOT_FOUND, "there is no hook"))
    assert api.get("/hooks/nope").status_code == 404
    response = api.put(PATH, {"kind": "plain"})
    assert response.status_code == 400 and response.json["errors"][0]["where"] == "body.kind"


def test_a_webhook_is_made_tested_and_removed(api: Any) -> None:
    body = {"url": "https://a.example/x", "filter": {"states": ["FAILED"], "labels": {"team": "ops"}}}
    assert api.put("/webhooks/pager", body).status_code == 200
    request = api.further.last
    assert (request.name, request.url, list(request.filter.states), dict(request.filter.labels)) == (
        "pager",
        "https://a.example/x",
        ["FAILED"],
        {"team": "ops"},
    )
    assert api.put("/webhooks/pager", {"enabled": False}).status_code == 200
    assert not api.further.last.HasField("filter") and api.further.last.HasField("enabled")
    pager = webhooks_pb2.Webhook(name="pager", origin="https://a.example", status="active")
    api.further.answers["ListWebhooks"] = webhooks_pb2.ListWebhooksResponse(webhooks=[pager])
    assert api.get("/webhooks").json["webhooks"][0]["origin"] == "https://a.example"
    assert api.get("/webhooks/pager").json["status"] == "active"
    assert api.get("/webhooks/other").json["code"] == "NOT_FOUND"
    api.further.answers["TestWebhook"] = webhooks_pb2.WebhookDelivery(id=3, webhook="pager", state="pending")
    assert api.post("/webhooks/pager/test").json["id"] == 3 and api.further.last.name == "pager"
    assert api.ask("DELETE", "/webhooks/pager").status_code == 200


def test_deliveries_are_listed_and_sent_again(api: Any) -> None:
    one = webhooks_pb2.WebhookDelivery(id=3, webhook="pager", state="failed")
    api.further.answers["ListDeliveries"] = webhooks_pb2.ListDeliveriesResponse(deliveries=[one], next_cursor="3")
    page = api.get("/deliveries?webhook=pager&state=failed&run_id=7&limit=1").json
    assert (page["deliveries"][0]["id"], page["next_cursor"]) == (3, "3")
    request = api.further.last
    assert (request.webhook, request.state, request.run_id, request.page.limit) == ("pager", "failed", 7, 1)
    api.further.answers["Redeliver"] = webhooks_pb2.RedeliverResponse(redelivered=2)
    assert api.post("/webhooks/pager/redeliver", {"ids": [3, 4]}).json == {"redelivered": 2}
    assert (api.further.last.webhook, list(api.further.last.ids)) == ("pager", [3, 4])
    assert api.post("/webhooks/pager/redeliver").status_code == 200 and not api.further.last.ids
    assert api.get("/deliveries?state=lost").status_code == 400
