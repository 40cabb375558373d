"""Webhooks in both directions: hooks, whose messages become events, and webhooks, which get ends of runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from toban_admin_web.decide.answer import Answer
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
from toban_admin_web.views.api.answers import Done
from toban_admin_web.views.api.endpoint import MAX_ID, MAX_NAME, Call, Endpoint, Input, Paged, Reason
from toban_domain.errors import ErrorCode, TobanError

MAX_SECRET, MAX_URL, MAX_ITEMS = 200, 2000, 100
Id = Annotated[int, Field(ge=1, le=MAX_ID)]


class NewMapping(BaseModel):
    """Which event a message becomes: `event_type` for all, or `events`."""

    # No Input: one of its fields is called as a method of that.
    model_config = Input.model_config

    event_type: str = Field("", max_length=128, description="The type of every event.")
    type_from: str = Field("", max_length=MAX_NAME, description="header:NAME or field:PATH; empty = that of the kind.")
    events: dict[str, str] = Field(
        default_factory=dict, max_length=MAX_ITEMS, description="Value and type of the event. Other values are ignored."
    )
    fields: list[str] = Field(default_factory=list, max_length=50, description="Paths of the body to keep; [] = all.")


class NewHook(Reason):
    """A hook; what is not given stays."""

    kind: Literal["standard", "github", "cloudevents", "cloudevents-token"] | None = Field(
        None, description="Of a new hook; it cannot be changed."
    )
    mapping: NewMapping | None = Field(None, description="A new hook needs one. It replaces the whole mapping.")
    enabled: bool | None = Field(None, description="While it is false, messages are refused.")
    rate_per_minute: int | None = Field(None, ge=1, le=60_000, description="Events a minute; a new hook has 600.")
    secret: str = Field("", max_length=MAX_SECRET, repr=False, description="Of your own; empty = see new_secret.")
    new_secret: bool = Field(False, description="Makes one. The secret before stays valid, as with `secret`.")
    drop_old_secret: bool = Field(False, description="Ends the validity of the secret before the present one.")


class Sample(Input):
    """A message that no one sent."""

    value: str = Field("", max_length=MAX_NAME, description="Of the header that decides the type.")
    payload: dict[str, Any] = Field(default_factory=dict, description="The body.")


class NewFilter(Input):
    """Which ends of runs."""

    states: list[str] = Field(
        default_factory=list,
        max_length=20,
        description="Terminal states and LATE; [] = FAILED, TIMED_OUT, EXPIRED. NONE alone: what jobs ask for.",
    )
    jobs: list[str] = Field(default_factory=list, max_length=MAX_ITEMS, description="Empty = of every job.")
    labels: dict[str, str] = Field(default_factory=dict, max_length=MAX_ITEMS)


class NewWebhook(Reason):
    """A webhook; what is not given stays."""

    url: str = Field("", max_length=MAX_URL, repr=False, description="A new webhook needs one. No answer has it.")
    form: Literal["generic", "slack", "teams", "smtp"] | None = None
    filter: NewFilter | None = Field(None, description="Replaces the whole filter.")
    enabled: bool | None = Field(None, description="While it is false, it gets nothing, also not later.")
    secret: str = Field("", max_length=MAX_SECRET, repr=False, description="whsec_ and base64; empty = it stays.")
    new_secret: bool = Field(False, description="Makes one in place of the present one.")


class DeliveriesQuery(Paged):
    """Which deliveries."""

    webhook: str = Field("", max_length=MAX_NAME, description="Empty = of all.")
    state: Literal["", "pending", "delivered", "failed"] = ""
    run_id: int = Field(0, ge=0, le=MAX_ID, description="0 = of every run.")
    id: int = Field(0, ge=0, le=MAX_ID, description="0 = all.")


class Again(Reason):
    """What is sent again."""

    ids: list[Id] = Field(default_factory=list, max_length=10_000, description="Empty = all that failed.")


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
