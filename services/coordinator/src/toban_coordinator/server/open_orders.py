"""Queued orders as the answer to a heartbeat carries them."""

from __future__ import annotations

from toban_coordinator.store.queued_orders import QueuedOrder
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import executor_pb2 as worker
from toban_proto.v1.common_pb2 import AttemptKey


def open_order(order: QueuedOrder) -> pb.OpenOrder:
    """The order with the authority that it was written under. Raises TobanError INTERNAL for a kind that is never queued."""
    header = worker.OrderHeader(leader_epoch=order.epoch, serial=order.serial, incarnation=order.incarnation)
    key = AttemptKey(run_id=order.run_id or 0, token=order.token or 0)
    if order.kind == "cancel":
        cancel = worker.CancelOrder(
            key=key,
            mode=str(order.payload.get("mode", "kill")),
            grace_seconds=float(order.payload.get("grace_seconds", 0.0)),
            reason=str(order.payload.get("reason", "")),
        )
        return pb.OpenOrder(order_id=order.id, cancel=worker.CancelJobRequest(header=header, orders=[cancel]))
    if order.kind == "revoke":
        return pb.OpenOrder(order_id=order.id, revoke=worker.RevokeRequest(header=header, keys=[key]))
    if order.kind == "drain":
        drain = worker.DrainRequest(header=header, drain=True, reason=str(order.payload.get("reason", "")))
        return pb.OpenOrder(order_id=order.id, drain=drain)
    raise TobanError(ErrorCode.INTERNAL, f"an order of kind {order.kind!r} is queued (order {order.id})")
