"""ArchiveGateway: which attempts have ended, and the settings, for log-archivers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from toban_coordinator.app.cluster.operations_archive import day_of
from toban_coordinator.app.cluster.settings_stream import SettingsStreams
from toban_coordinator.server.cluster_to_proto import settings_to_pb
from toban_coordinator.store.runs import attempts
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_proto.v1 import common_pb2
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import ArchiveGatewayServicer
from toban_store.pool import Pool
from toban_store.tx import autocommit

Context = Any
MAX_KEYS = 1000


class ArchiveGateway(ArchiveGatewayServicer):
    """Any coordinator answers."""

    def __init__(self, *, pool: Pool, settings: SettingsStreams) -> None:
        self._pool = pool
        self._settings = settings

    async def ListSealed(self, request: pb.ListSealedRequest, _context: Context) -> pb.ListSealedResponse:
        """Those of the given attempts whose log is complete."""
        if len(request.keys) > MAX_KEYS:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{len(request.keys)} attempts: ask about {MAX_KEYS} at most")
        keys = [AttemptKey(key.run_id, key.token) for key in request.keys]
        async with autocommit(self._pool) as t:
            found = await attempts.ended(t, day_of(request.log_day), keys, off_seconds=request.off_seconds)
        return pb.ListSealedResponse(attempts=[_to_pb(one) for one in found])

    async def WatchSettings(
        self, _request: pb.WatchSettingsRequest, _context: Context
    ) -> AsyncIterator[pb.WatchSettingsResponse]:
        """Now and on each change."""
        async for settings in self._settings.watch():
            yield settings_to_pb(settings)


def _to_pb(one: attempts.EndedAttempt) -> pb.SealedAttempt:
    key = common_pb2.AttemptKey(run_id=one.key.run_id, token=one.key.token)
    return pb.SealedAttempt(key=key, last_seq=one.last_seq or 0, complete=one.last_seq is not None)
