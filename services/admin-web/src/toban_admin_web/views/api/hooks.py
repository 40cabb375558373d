"""Webhooks in both directions: hooks, whose messages become events, and webhooks, which get ends of runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from toban_admin_web.decide.answer import Answer
from toban_admin_web.decide.api_inputs import Again, DeliveriesQuery, NewHook, NewWebhook, Sample
from toban_admin_web.decide.api_models import (
    ChangedHook,
    ChangedWebhook,
    DeliveryPage,
    Hook,
    Hooks,
    HookTest,
    Redelivered,
    Webhook,
    WebhookDelivery,
    Webhooks,
)
from toban_admin_web.decide.request_input import MAX_ID, Reason
from toban_admin_web.views.api.answers import Done
from toban_admin_web.views.api.endpoint import Call, Endpoint
from toban_domain.errors import ErrorCode, TobanError

MAX_SECRET, MAX_URL, MAX_ITEMS = 200, 2000, 100
Id = Annotated[int, Field(ge=1, le=MAX_ID)]


def _hook(call: Call) -> Answer:
    return call.ask(Hooks, call.fields()).hooks[0]


def _webhook(call: Call) -> Answer:
    wanted = call.path["name"]
    for webhook in call.ask(Webhooks, {}).webhooks:
        if webhook.name == wanted:
            return webhook
    raise TobanError(ErrorCode.NOT_FOUND, f"there is no webhook {wanted!r}; GET /api/v1/webhooks lists them")


ENDPOINTS = (
    Endpoint(route="GET /hooks", summary="All hooks: messages of other systems that become events.", answer=Hooks),
    Endpoint(route="GET /hooks/{name}", summary="One hook.", answer=Hook, handle=_hook),
    Endpoint(
        route="PUT /hooks/{name}", summary="Makes a hook, or changes what is given.", body=NewHook, answer=ChangedHook
    ),
    Endpoint(route="DELETE /hooks/{name}", summary="Removes a hook; its events stay.", query=Reason, answer=Done),
    Endpoint(
        route="POST /hooks/{name}/test",
        summary="Which event a message would become. Emits nothing.",
        body=Sample,
        body_optional=True,
        answer=HookTest,
    ),
    Endpoint(route="GET /webhooks", summary="All webhooks: targets of ends of runs.", answer=Webhooks),
    Endpoint(route="GET /webhooks/{name}", summary="One webhook.", answer=Webhook, handle=_webhook),
    Endpoint(
        route="PUT /webhooks/{name}",
        summary="Makes a webhook, or changes what is given.",
        body=NewWebhook,
        answer=ChangedWebhook,
    ),
    Endpoint(
        route="DELETE /webhooks/{name}",
        summary="Removes a webhook; what waits for it is not sent.",
        query=Reason,
        answer=Done,
    ),
    Endpoint(
        route="POST /webhooks/{name}/test",
        summary="Sends an event of type webhook.test; GET /deliveries has its outcome.",
        body=Reason,
        body_optional=True,
        answer=WebhookDelivery,
    ),
    Endpoint(
        route="POST /webhooks/{name}/redeliver",
        summary="Sends deliveries again, under the ids that they had.",
        body=Again,
        body_optional=True,
        answer=Redelivered,
        renames={"name": "webhook"},
    ),
    Endpoint(
        route="GET /deliveries",
        summary="Deliveries to webhooks, newest first.",
        query=DeliveriesQuery,
        answer=DeliveryPage,
    ),
)
