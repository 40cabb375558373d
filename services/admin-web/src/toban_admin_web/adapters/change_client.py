"""WatchChanges over gRPC. The site acts for itself here, not for a person."""

from __future__ import annotations

from collections.abc import Iterator

from toban_admin_web.ports.changes import Changes
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import ChangeFeedStub
from toban_transport.replica_client import Fleet


class ChangeClient:
    """Any coordinator answers."""

    def __init__(self, *, coordinators: Fleet) -> None:
        self._coordinators = coordinators

    def watch(self, *, seconds: float) -> Iterator[Changes]:
        """As ChangeSource.watch."""
        request = pb.WatchChangesRequest()
        for one in self._coordinators.stream(
            lambda channel: ChangeFeedStub(channel).WatchChanges, request, timeout=seconds
        ):
            yield Changes(frozenset(one.kinds), frozenset(one.run_ids))
