"""Webhooks in both directions: hooks, whose messages become events, and webhooks, which get ends of runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from toban_admin_web.decide.answer import Answer
from toban_admin_web.decide.api_models import (
    Hook,
    Hooks,
    Webhook,
    Webhooks,
)
from toban_admin_web.decide.request_input import MAX_ID
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
    Endpoint.of("GET /hooks/{name}", summary="One hook.", answer=Hook, handle=_hook),
    Endpoint.of("GET /webhooks/{name}", summary="One webhook.", answer=Webhook, handle=_webhook),
)
