"""ChangeFeed: what has changed, for the sites."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from toban_coordinator.app.cluster.change_feed import ChangeFeed
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import ChangeFeedServicer


class ChangeFeedService(ChangeFeedServicer):
    """Any coordinator answers."""

    def __init__(self, *, feed: ChangeFeed) -> None:
        self._feed = feed

    async def WatchChanges(self, _request: pb.WatchChangesRequest, _context: Any) -> AsyncIterator[pb.Changes]:
        """Until the caller leaves or this process ends."""
        async for one in self._feed.watch():
            yield pb.Changes(kinds=sorted(one.kinds), run_ids=sorted(one.runs))
