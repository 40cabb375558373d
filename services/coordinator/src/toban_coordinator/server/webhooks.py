"""Webhooks: targets and deliveries for people, and the outbox for admin-web, which sends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from toban_coordinator.app.notifications.operations_webhooks import TargetChange, WebhookOperations
from toban_coordinator.app.notifications.webhook_outbox import WebhookOutbox
from toban_coordinator.decide.notifications.webhooks import LEASE_SECONDS, TryResult, check_states
from toban_coordinator.server.from_proto import arguments_of, audit_of, page_from_pb
from toban_coordinator.store.notifications.webhook_outbox import Wanted
from toban_coordinator.store.notifications.webhooks import Filter, StoredTarget
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import webhooks_pb2 as pb
from toban_proto.v1.webhooks_pb2_grpc import WebhookOutboxServicer, WebhooksServicer
from toban_transport.convert import fill
from toban_transport.server import actor_of

Context = Any


class WebhooksService(WebhooksServicer):
    """Any coordinator answers. Each change is in the audit log, in its own transaction."""

    def __init__(self, *, operations: WebhookOperations, now: Callable[[], datetime]) -> None:
        self._operations = operations
        self._now = now

    async def SetWebhook(self, request: pb.SetWebhookRequest, context: Context) -> pb.SetWebhookResponse:
        """A new target, or one with other values."""
        change = TargetChange(
            name=request.name,
            url=request.url,
            form=request.form,
            which=_filter(request.filter) if request.HasField("filter") else None,
            enabled=request.enabled if request.HasField("enabled") else None,
            secret=request.secret,
            new_secret=request.new_secret,
            reason=request.reason,
        )
        target, secret = await self._operations.set(change, actor_of(context))
        return pb.SetWebhookResponse(webhook=self._target(target), secret=secret)

    async def ListWebhooks(self, _request: pb.ListWebhooksRequest, _context: Context) -> pb.ListWebhooksResponse:
        """Every target."""
        return pb.ListWebhooksResponse(webhooks=[self._target(one) for one in await self._operations.list()])

    async def RemoveWebhook(self, request: pb.RemoveWebhookRequest, context: Context) -> pb.RemoveWebhookResponse:
        """Deletes a target with its URL and secret."""
        await self._operations.remove(**arguments_of(request, context))
        return pb.RemoveWebhookResponse()

    async def TestWebhook(self, request: pb.TestWebhookRequest, context: Context) -> pb.WebhookDelivery:
        """A delivery that says nothing but that it arrives."""
        row = await self._operations.test(**arguments_of(request, context))
        return _delivery(row)

    async def ListDeliveries(self, request: pb.ListDeliveriesRequest, _context: Context) -> pb.ListDeliveriesResponse:
        """A page of deliveries."""
        wanted = Wanted(webhook=request.webhook, state=request.state, run_id=request.run_id, id=request.id)
        page = await self._operations.deliveries(wanted, page_from_pb(request.page))
        return pb.ListDeliveriesResponse(deliveries=map(_delivery, page.rows), next_cursor=page.next_cursor)

    async def Redeliver(self, request: pb.RedeliverRequest, context: Context) -> pb.RedeliverResponse:
        """Deliveries that are sent again."""
        count = await self._operations.redeliver(request.webhook, list(request.ids), **audit_of(request, context))
        return pb.RedeliverResponse(redelivered=count)

    def _target(self, one: StoredTarget) -> pb.Webhook:
        is_open = one.open_until is not None and one.open_until > self._now()
        return fill(pb.Webhook, one, open_until=one.open_until if is_open else None)


class WebhookOutboxService(WebhookOutboxServicer):
    """The outbox, over gRPC."""

    def __init__(self, *, outbox: WebhookOutbox) -> None:
        self._outbox = outbox

    async def ClaimDeliveries(
        self, request: pb.ClaimDeliveriesRequest, _context: Context
    ) -> pb.ClaimDeliveriesResponse:
        """Deliveries for the caller alone."""
        claim = await self._outbox.claim(request.limit)
        requests = [
            pb.OutgoingRequest(
                delivery_id=one.delivery,
                lease=claim.lease,
                webhook=one.target,
                url=one.url,
                headers=one.headers,
                body=one.body,
                lease_ms=round(LEASE_SECONDS * 1000),
            )
            for one in claim.requests
        ]
        return pb.ClaimDeliveriesResponse(requests=requests, next_poll_ms=round(claim.next_poll_seconds * 1000))

    async def ConfirmDelivery(
        self, request: pb.ConfirmDeliveryRequest, _context: Context
    ) -> pb.ConfirmDeliveryResponse:
        """How a try ended."""
        if not request.status and not request.error:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, "give the status of a response, or an error")
        result = TryResult(
            status=request.status,
            error=request.error,
            retry_after=request.retry_after_seconds,
            permanent=request.permanent,
        )
        return pb.ConfirmDeliveryResponse(
            accepted=await self._outbox.confirm(request.delivery_id, request.lease, result)
        )


def _filter(given: pb.WebhookFilter) -> Filter:
    return Filter(states=check_states(given.states), jobs=sorted(set(given.jobs)), labels=dict(given.labels))


def _delivery(row: Any) -> pb.WebhookDelivery:
    event_id = f"evt_{row['event_id'].replace('-', '')}"
    return fill(
        pb.WebhookDelivery, row, event_id=event_id, next_at=row["next_at"] if row["state"] == "pending" else None
    )
