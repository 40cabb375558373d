"""ArchiveGateway: what log-archivers ask."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from toban_coordinator.server.settings_stream import SettingsStreams
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import ArchiveGatewayServicer

Context = Any


class ArchiveGateway(ArchiveGatewayServicer):
    """Any coordinator answers."""

    def __init__(self, *, settings: SettingsStreams) -> None:
        self._settings = settings

    async def WatchSettings(
        self, _request: pb.WatchSettingsRequest, _context: Context
    ) -> AsyncIterator[pb.WatchSettingsResponse]:
        """Now and on each change."""
        async for message in self._settings.watch():
            yield message
