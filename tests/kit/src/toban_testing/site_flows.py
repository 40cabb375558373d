"""What a coordinator sends to the site about events, triggers, webhooks and hooks, with values that a test may set."""

from __future__ import annotations

from typing import Any

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import hooks_pb2, webhooks_pb2
from toban_testing.site_messages import stamp


def event_message(**given: Any) -> pb.Event:
    """An event that started a run."""
    values: dict[str, Any] = {
        "id": 31,
        "event_type": "order.paid",
        "payload_json": '{"order": {"id": 7}}',
        "dedupe_key": "order-7",
        "created_at": stamp(60),
        "processed_at": stamp(59),
        "outcome": "started",
        "run_ids": [7],
        "created_by": "hook shop",
    }
    return pb.Event(**(values | given))


def trigger_message(**given: Any) -> pb.Trigger:
    """A trigger on a type of event."""
    values: dict[str, Any] = {
        "name": "invoice-when-paid",
        "job": "hello",
        "event_type": "order.paid",
        "enabled": True,
        "spec_json": '{"name": "invoice-when-paid", "event_type": "order.paid", "job": "hello"}',
        "version": 2,
        "updated_at": stamp(3600),
    }
    return pb.Trigger(**(values | given))


def webhook_message(**given: Any) -> webhooks_pb2.Webhook:
    """A target whose last tries failed."""
    values: dict[str, Any] = {
        "name": "pager",
        "origin": "https://alerts.example.com",
        "form": "generic",
        "states": ["FAILED", "TIMED_OUT"],
        "jobs": ["hello"],
        "labels": {"team": "data"},
        "enabled": True,
        "status": "failing",
        "failures": 2,
        "failing_since": stamp(300),
        "last_error": "the target responded with 500",
        "pending": 3,
        "oldest_pending_at": stamp(290),
        "version": 4,
        "updated_at": stamp(3600),
        "updated_by": "user ada",
    }
    return webhooks_pb2.Webhook(**(values | given))


def delivery_message(**given: Any) -> webhooks_pb2.WebhookDelivery:
    """A delivery that the target did not take."""
    values: dict[str, Any] = {
        "id": 12,
        "webhook": "pager",
        "event_id": "evt_6f0c",
        "type": "webhook.test",
        "run_id": 7,
        "state": "failed",
        "attempts": 12,
        "created_at": stamp(600),
        "ended_at": stamp(30),
        "status": 500,
        "error": "the target responded with 500",
    }
    return webhooks_pb2.WebhookDelivery(**(values | given))


def hook_message(**given: Any) -> hooks_pb2.Hook:
    """A hook with two valid secrets, whose messages become events."""
    mapping: dict[str, Any] = {
        "type_from": "header:x-github-event",
        "events": {"push": "git.push", "pull_request": "pull_request"},
        "fields": ["ref"],
    }
    values: dict[str, Any] = {
        "name": "repo",
        "kind": "github",
        "mapping": hooks_pb2.HookMapping(**mapping),
        "enabled": True,
        "rate_per_minute": 600,
        "secrets": 2,
        "last_event_at": stamp(60),
        "version": 3,
        "updated_at": stamp(3600),
        "updated_by": "user ada",
    }
    return hooks_pb2.Hook(**(values | given))


def flow_responses() -> dict[str, Any]:
    """What a coordinator answers, by method."""
    return {
        "ListEvents": pb.ListEventsResponse(events=[event_message()], next_cursor="30"),
        "ListTriggers": pb.ListTriggersResponse(triggers=[trigger_message()]),
        "EmitEvent": pb.EmitEventResponse(event_id=31),
        "ListWebhooks": webhooks_pb2.ListWebhooksResponse(webhooks=[webhook_message()]),
        "ListDeliveries": webhooks_pb2.ListDeliveriesResponse(deliveries=[delivery_message()], next_cursor="11"),
        "SetWebhook": webhooks_pb2.SetWebhookResponse(webhook=webhook_message()),
        "TestWebhook": delivery_message(type="webhook.test", state="pending"),
        "Redeliver": webhooks_pb2.RedeliverResponse(redelivered=1),
        "ListHooks": hooks_pb2.ListHooksResponse(hooks=[hook_message()]),
        "SetHook": hooks_pb2.SetHookResponse(hook=hook_message()),
        "TestHook": hooks_pb2.TestHookResponse(
            result="accepted", event_type="git.push", payload_json='{"ref": "main"}'
        ),
    }


def hostile_flows(text: str) -> dict[str, Any]:
    """The same with `text` for each text."""
    event = dict.fromkeys(("event_type", "payload_json", "dedupe_key", "outcome", "message", "created_by"), text)
    trigger = dict.fromkeys(("job", "event_type", "spec_json", "last_error"), text)
    webhook = dict.fromkeys(("name", "origin", "form", "status", "last_error", "updated_by"), text)
    delivery = dict.fromkeys(("webhook", "event_id", "type", "state", "error"), text)
    hook = dict.fromkeys(("name", "kind", "updated_by"), text)
    mapping = hooks_pb2.HookMapping(event_type=text, type_from=text, events={text: text}, fields=[text])
    webhook_lists = {"states": [text], "jobs": [text], "labels": {text: text}}
    return {
        "ListEvents": pb.ListEventsResponse(events=[event_message(**event)], next_cursor=text),
        "ListTriggers": pb.ListTriggersResponse(
            triggers=[trigger_message(**trigger), trigger_message(**trigger, name=text)], next_cursor=text
        ),
        "ListWebhooks": webhooks_pb2.ListWebhooksResponse(
            webhooks=[webhook_message(**webhook, **webhook_lists), webhook_message(last_error=text, states=[text])]
        ),
        "ListDeliveries": webhooks_pb2.ListDeliveriesResponse(
            deliveries=[delivery_message(**delivery)], next_cursor=text
        ),
        "ListHooks": hooks_pb2.ListHooksResponse(
            hooks=[hook_message(**hook, mapping=mapping), hook_message(kind=text, mapping=mapping)]
        ),
    }
