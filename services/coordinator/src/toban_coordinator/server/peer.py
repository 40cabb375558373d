"""Peer: what coordinators tell each other about themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from toban_coordinator.ports.leader import LeaderSource, LeaderView, ServerClock
from toban_coordinator.ports.settings import SettingsSource
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import PeerServicer
from toban_runtime.clock import Clock
from toban_transport.convert import timestamp_to_pb

WATCH_SECONDS = 0.2
Context = Any


class PeerServer(PeerServicer):
    """Answers from memory, so that it says something also without PostgreSQL and Redis."""

    def __init__(
        self, *, incarnation: str, leader: LeaderSource, now: ServerClock, clock: Clock, settings: SettingsSource
    ) -> None:
        self._settings = settings
        self._incarnation = incarnation
        self._leader = leader
        self._now = now
        self._clock = clock

    async def Ping(self, _request: pb.PeerPingRequest, _context: Context) -> pb.PeerPingResponse:
        """That this incarnation is there."""
        return pb.PeerPingResponse(incarnation=self._incarnation)

    async def GetStatus(self, _request: pb.PeerStatusRequest, _context: Context) -> pb.PeerStatusResponse:
        """Role, epoch, and whether it ticks."""
        view = self._leader.view()
        return pb.PeerStatusResponse(
            incarnation=self._incarnation,
            role=view.role,
            epoch=view.epoch,
            last_tick_at=timestamp_to_pb(view.last_tick_at),
            ticking=self._ticks(view),
        )

    async def Watch(self, _request: pb.PeerWatchRequest, _context: Context) -> AsyncIterator[pb.PeerWatchResponse]:
        """A message every WATCH_SECONDS while this process leads; the last one says that it does not."""
        while True:
            view = self._leader.view()
            yield pb.PeerWatchResponse(epoch=view.epoch, leading=view.leading, beat=view.beat)
            if not view.leading:
                return
            await self._clock.sleep(WATCH_SECONDS)

    def _ticks(self, view: LeaderView) -> bool:
        if not view.leading or view.last_tick_at is None:
            return False
        return self._now.now() - view.last_tick_at <= timedelta(seconds=self._settings.known["leader_stale_seconds"])
