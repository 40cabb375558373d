"""WorkerService: the orders of coordinators. Each is decided by the order book and on disk before the answer leaves."""

from collections.abc import Callable
from typing import Any

from toban_executor.adapters.convert import answer_to_pb, cancel_from_pb, header_from_pb, keys_from_pb, start_from_pb
from toban_executor.app.attempt_manager import AttemptManager
from toban_executor.decide.models import StartOrder
from toban_proto.v1 import executor_pb2 as pb
from toban_proto.v1.executor_pb2_grpc import WorkerServiceServicer, add_WorkerServiceServicer_to_server
from toban_transport.convert import key_from_pb, key_to_pb, usage_to_pb

add_to_server = add_WorkerServiceServicer_to_server
"""For `GrpcServer.add`."""


class WorkerService(WorkerServiceServicer):
    """Serves one incarnation. `complete` gives steps that the executor carries out by itself their programs."""

    def __init__(self, *, attempts: AttemptManager, complete: Callable[[StartOrder], StartOrder]) -> None:
        self._attempts = attempts
        self._complete = complete

    async def Ping(self, _request: pb.PingRequest, _context: Any) -> pb.PingResponse:
        """The incarnation that serves here, and the highest epoch that it knows."""
        book = self._attempts.book
        return pb.PingResponse(incarnation=book.incarnation, epoch_max=book.epoch_max)

    async def GetUsage(self, request: pb.GetUsageRequest, _context: Any) -> pb.GetUsageResponse:
        """What the processes of an attempt use."""
        samples = self._attempts.notes.usage.of(key_from_pb(request.key))
        return pb.GetUsageResponse(samples=map(usage_to_pb, samples))

    async def StartJob(self, request: pb.StartJobRequest, _context: Any) -> pb.StartJobResponse:
        """Start attempts; each is answered by itself."""
        orders = [self._complete(start_from_pb(order)) for order in request.orders]
        answers = await self._attempts.start(header_from_pb(request.header), orders, request.smallest_live_token)
        return pb.StartJobResponse(results=[answer_to_pb(answer) for answer in answers])

    async def CancelJob(self, request: pb.CancelJobRequest, _context: Any) -> pb.CancelJobResponse:
        """Begin to end attempts."""
        orders = [cancel_from_pb(order) for order in request.orders]
        results = await self._attempts.cancel(header_from_pb(request.header), orders)
        pairs = zip(orders, results, strict=True)
        return pb.CancelJobResponse(
            results=[pb.CancelResult(key=key_to_pb(order.key), result=result) for order, result in pairs]
        )

    async def Revoke(self, request: pb.RevokeRequest, _context: Any) -> pb.RevokeResponse:
        """Promise never to start attempts."""
        keys = keys_from_pb(request.keys)
        results = await self._attempts.revoke(header_from_pb(request.header), keys)
        pairs = zip(keys, results, strict=True)
        return pb.RevokeResponse(results=[pb.RevokeResult(key=key_to_pb(key), result=result) for key, result in pairs])
