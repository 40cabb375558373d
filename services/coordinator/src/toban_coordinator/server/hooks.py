"""Incoming webhooks: hooks for people, and the messages that admin-web receives."""

from __future__ import annotations

from typing import Any

from toban_coordinator.app.notifications.hook_receiver import HookReceiver
from toban_coordinator.app.notifications.operations_hooks import HookChange, HookOperations
from toban_coordinator.decide.notifications.hook_messages import HookMessage
from toban_coordinator.decide.notifications.hooks import HookMapping
from toban_coordinator.server.from_proto import arguments_of
from toban_coordinator.store.notifications.hooks import StoredHook
from toban_domain.payload import canonical_json
from toban_proto.v1 import hooks_pb2 as pb
from toban_proto.v1.hooks_pb2_grpc import HookReceiverServicer, HooksServicer
from toban_transport.convert import fill
from toban_transport.server import actor_of

Context = Any


class HooksService(HooksServicer):
    """Any coordinator answers. Each change is in the audit log, in its own transaction."""

    def __init__(self, *, operations: HookOperations) -> None:
        self._operations = operations

    async def SetHook(self, request: pb.SetHookRequest, context: Context) -> pb.SetHookResponse:
        """A new hook, or one with other values."""
        change = HookChange(
            name=request.name,
            kind=request.kind,
            mapping=_mapping(request.mapping) if request.HasField("mapping") else None,
            enabled=request.enabled if request.HasField("enabled") else None,
            rate=request.rate_per_minute,
            secret=request.secret,
            new_secret=request.new_secret,
            drop_old_secret=request.drop_old_secret,
            reason=request.reason,
        )
        hook, secret = await self._operations.set(change, actor_of(context))
        return pb.SetHookResponse(hook=_hook(hook), secret=secret)

    async def ListHooks(self, request: pb.ListHooksRequest, _context: Context) -> pb.ListHooksResponse:
        """Every hook, or one."""
        return pb.ListHooksResponse(hooks=[_hook(one) for one in await self._operations.list(request.name)])

    async def RemoveHook(self, request: pb.RemoveHookRequest, context: Context) -> pb.RemoveHookResponse:
        """Deletes a hook with its secrets."""
        await self._operations.remove(**arguments_of(request, context))
        return pb.RemoveHookResponse()

    async def TestHook(self, request: pb.TestHookRequest, _context: Context) -> pb.TestHookResponse:
        """What a message would become."""
        said = await self._operations.test(request.name, request.payload_json, request.value)
        result = "ping" if said.is_ping else "accepted" if said.type else "ignored"
        return pb.TestHookResponse(result=result, event_type=said.type, payload_json=canonical_json(said.payload))


class HookReceiverService(HookReceiverServicer):
    """Messages, over gRPC. The site has no person here."""

    def __init__(self, *, receiver: HookReceiver) -> None:
        self._receiver = receiver

    async def ReceiveHook(self, request: pb.ReceiveHookRequest, _context: Context) -> pb.ReceiveHookResponse:
        """The event of a message."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        message = HookMessage(name=request.name, headers=headers, body=request.body, address=request.address)
        done = await self._receiver.receive(message)
        return pb.ReceiveHookResponse(result=done.result, event_id=done.event_id, event_type=done.event_type)


def _mapping(given: pb.HookMapping) -> HookMapping:
    return HookMapping(
        event_type=given.event_type, type_from=given.type_from, events=dict(given.events), fields=list(given.fields)
    )


def _hook(one: StoredHook) -> pb.Hook:
    return fill(pb.Hook, one, mapping=fill(pb.HookMapping, one))
