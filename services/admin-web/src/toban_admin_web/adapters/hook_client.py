"""Incoming webhooks over gRPC. The site checks no signature: coordinators have the secrets."""

from __future__ import annotations

from toban_admin_web.ports.hooks import Message, Received
from toban_proto.v1 import hooks_pb2 as pb
from toban_proto.v1.hooks_pb2_grpc import HookReceiverStub
from toban_transport.replica_client import Fleet

CALL_SECONDS = 8.0
# A coordinator that does not respond is skipped for another one: the id of a message makes a second call harmless.
ATTEMPT_SECONDS = 2.5


class HookClient:
    """Any coordinator answers."""

    def __init__(self, *, coordinators: Fleet) -> None:
        self._coordinators = coordinators

    def receive(self, message: Message) -> Received:
        """ReceiveHook."""
        request = pb.ReceiveHookRequest(
            name=message.hook, headers=message.headers, body=message.body, address=message.address
        )
        answer = self._coordinators.call(
            lambda channel: HookReceiverStub(channel).ReceiveHook,
            request,
            timeout=CALL_SECONDS,
            attempt_seconds=ATTEMPT_SECONDS,
        )
        return Received(result=answer.result, event_id=answer.event_id, event_type=answer.event_type)
