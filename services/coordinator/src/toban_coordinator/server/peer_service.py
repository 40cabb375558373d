"""Peer: what coordinators tell each other about themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

from toban_coordinator.ports.leader import LeaderSource, LeaderView, ServerClock
from toban_coordinator.ports.settings import SettingsSource
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import PeerServicer
from toban_transport.convert import timestamp_to_pb

# How often a watcher gets an unchanged state. Long, since only the end of the stream means anything.
WATCH_SECONDS = 1.0
Context = Any


class PeerServer(PeerServicer):
    """Answers from memory, so that it says something also without PostgreSQL and Redis."""

    def __init__(self, *, incarnation: str, leader: LeaderSource, now: ServerClock, settings: SettingsSource) -> None:
        self._settings = settings
        self._incarnation = incarnation
        self._leader = leader
        self._now = now

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
        """A message now and every WATCH_SECONDS while this process leads; the last one says at once that it does not."""
        while True:
            view = self._leader.view()
            yield pb.PeerWatchResponse(epoch=view.epoch, leading=view.leading, beat=view.beat)
            if not view.leading:
                return
            if self._leader.view().leading:
                with suppress(TimeoutError):
                    async with asyncio.timeout(WATCH_SECONDS):
                        await self._leader.changed()

    def _ticks(self, view: LeaderView) -> bool:
        if not view.leading or view.last_tick_at is None:
            return False
        return self._now.now() - view.last_tick_at <= timedelta(seconds=self._settings.known["leader_stale_seconds"])
