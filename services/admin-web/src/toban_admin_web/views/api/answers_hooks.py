"""Webhooks in both directions, in answers of the API."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from toban_admin_web.views.api.answers import Answer, Page


class HookMapping(Answer):
    """Which event a message becomes."""

    event_type: str = Field(description="The type of every event; empty where `events` decides.")
    type_from: str = Field(description="Where the value is that `events` lists: header:NAME or field:PATH.")
    events: dict[str, str] = Field(description="Value and type of the event. Other values are ignored.")
    fields: list[str] = Field(description="Paths of the body that the event keeps; empty = all.")


class Hook(Answer):
    """Where messages of another system arrive, without its secrets."""

    name: str
    kind: str = Field(description="standard | github | cloudevents | cloudevents-token")
    mapping: HookMapping
    enabled: bool
    rate_per_minute: int
    secrets: int = Field(description="Secrets that are valid: 2 during a rotation.")
    last_event_at: datetime | None
    version: int
    updated_at: datetime | None
    updated_by: str


class Hooks(Answer):
    """All hooks."""

    hooks: list[Hook]


class ChangedHook(Answer):
    """A hook that was made or changed."""

    hook: Hook
    secret: str = Field(description="A secret that was made for it; no other answer has it.")


class HookTest(Answer):
    """What a message would become."""

    result: str = Field(description="accepted | ignored | ping")
    event_type: str
    payload: Any = Field(description="What the event would have.")


class Webhook(Answer):
    """Where ends of runs are sent, without its URL and secret."""

    name: str
    origin: str = Field(description="Scheme, host and port.")
    states: list[str] = Field(description="Ends of runs that it gets; empty = only what jobs notify it of.")
    jobs: list[str] = Field(description="Empty = of every job.")
    labels: dict[str, str]
    enabled: bool
    status: str = Field(description="active | failing | down (the breaker is open) | disabled")
    failures: int
    failing_since: datetime | None
    last_error: str
    open_until: datetime | None
    pending: int
    oldest_pending_at: datetime | None
    version: int
    updated_at: datetime | None
    updated_by: str
    form: str = Field(description="generic | slack | teams | smtp")


class Webhooks(Answer):
    """All webhooks."""

    webhooks: list[Webhook]


class ChangedWebhook(Answer):
    """A webhook that was made or changed."""

    webhook: Webhook
    secret: str = Field(description="A secret that was made for it; no other answer has it.")


class WebhookDelivery(Answer):
    """One event for one webhook."""

    id: int
    webhook: str
    event_id: str = Field(description="Header webhook-id, the same for each try.")
    type: str
    run_id: int = Field(description="0 = about no run.")
    state: str = Field(description="pending | delivered | failed")
    attempts: int
    created_at: datetime | None
    next_at: datetime | None
    ended_at: datetime | None
    status: int = Field(description="HTTP status of the last response; 0 = there was none.")
    error: str


class DeliveryPage(Page):
    """A page of deliveries."""

    deliveries: list[WebhookDelivery]


class Redelivered(Answer):
    """How many deliveries are sent again."""

    redelivered: int
