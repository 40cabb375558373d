"""The outbox of webhooks over gRPC. The site acts for itself here, not for a person."""

from __future__ import annotations

from typing import Any

from toban_admin_web.ports.webhooks import Batch, Outgoing, PostResult
from toban_proto.v1 import webhooks_pb2 as pb
from toban_proto.v1.webhooks_pb2_grpc import WebhookOutboxStub
from toban_transport.replica_client import Fleet

CALL_SECONDS = 5.0


class WebhookClient:
    """Any coordinator answers."""

    def __init__(self, *, coordinators: Fleet) -> None:
        self._coordinators = coordinators

    def claim(self, limit: int) -> Batch:
        """ClaimDeliveries."""
        answer = self._call("ClaimDeliveries", pb.ClaimDeliveriesRequest(limit=limit))
        requests = [
            Outgoing(
                delivery=one.delivery_id,
                lease=one.lease,
                webhook=one.webhook,
                url=one.url,
                headers=dict(one.headers),
                body=one.body,
            )
            for one in answer.requests
        ]
        return Batch(requests=requests, next_poll_seconds=answer.next_poll_ms / 1000)

    def confirm(self, one: Outgoing, result: PostResult) -> bool:
        """ConfirmDelivery."""
        request = pb.ConfirmDeliveryRequest(
            delivery_id=one.delivery,
            lease=one.lease,
            status=result.status,
            error=result.error,
            retry_after_seconds=result.retry_after,
            permanent=result.permanent,
        )
        return bool(self._call("ConfirmDelivery", request).accepted)

    def _call(self, method: str, request: Any) -> Any:
        return self._coordinators.call(
            lambda channel: getattr(WebhookOutboxStub(channel), method), request, timeout=CALL_SECONDS
        )
