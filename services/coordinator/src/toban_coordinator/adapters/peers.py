"""Calls to other coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from toban_coordinator.ports.peers import PeerBeat, PeerStatus
from toban_proto.v1.coordinator_pb2 import PeerStatusRequest, PeerWatchRequest
from toban_proto.v1.coordinator_pb2_grpc import PeerStub
from toban_transport.authz import COORDINATOR
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import stream, unary

STATUS_SECONDS = 0.5
CONNECT_SECONDS = 0.3
WATCH_SECONDS = 300.0


class PeerCalls:
    """`Peers` over gRPC; only the refused reconnect is looked at below it, where a refusal and a silence are told apart for sure."""

    def __init__(self, *, channels: ChannelPool, incarnation: str) -> None:
        self._channels = channels
        self._incarnation = incarnation

    async def watch(self, address: str) -> AsyncIterator[PeerBeat]:
        """Messages of that coordinator while it leads. Raises TobanError when the stream breaks."""
        stub = PeerStub(self._channels.get(address, COORDINATOR))
        request = PeerWatchRequest(incarnation=self._incarnation)
        async for message in stream(stub.Watch, request, timeout=WATCH_SECONDS):
            yield PeerBeat(epoch=message.epoch, leading=message.leading, beat=message.beat)

    async def status(self, address: str) -> PeerStatus:
        """What that coordinator says of itself. Raises TobanError."""
        stub = PeerStub(self._channels.get(address, COORDINATOR))
        answer = await unary(stub.GetStatus, PeerStatusRequest(), timeout=STATUS_SECONDS)
        return PeerStatus(incarnation=answer.incarnation, role=answer.role, epoch=answer.epoch, ticking=answer.ticking)

    async def refused(self, address: str) -> bool:
        """True when the kernel at `address` refuses a new connection."""
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        writer.close()
        return False
