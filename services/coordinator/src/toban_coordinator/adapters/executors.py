"""Orders to executors over WorkerService, one RPC in flight per incarnation, serials in the order of sending (docs/fencing.md 3.9)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from toban_coordinator.adapters.order_messages import cancel_request, header, revoke_request, start_requests
from toban_coordinator.ports.orders import (
    QUEUED,
    SECRET_UNAVAILABLE,
    TEMPLATE_INVALID,
    CancelOrder,
    ExecutorDirectory,
    ExecutorFacts,
    OrderQueue,
    OrderTemplates,
    StartOrder,
    StartResult,
    Target,
)
from toban_coordinator.ports.secrets import SecretSource, SecretUse
from toban_domain.epoch import Term
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_domain.secret import SecretFile
from toban_domain.usage import UsageSample
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_proto.v1.executor_pb2 import GetUsageRequest, PingRequest, StartJobRequest
from toban_proto.v1.executor_pb2_grpc import WorkerServiceStub
from toban_transport.authz import executor_name
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import unary
from toban_transport.convert import key_to_pb, usage_from_pb
from toban_transport.log_ticket import ANYBODY, TicketHolder, TicketSigner

START_SECONDS = 3.0
ORDER_SECONDS = 1.0
PING_SECONDS = 0.3
R = TypeVar("R")
_UNDELIVERED = frozenset(
    {ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.RESOURCE_EXHAUSTED, ErrorCode.INTERNAL}
)

_log = get_logger(__name__)
_calls = metrics.counter("toban_orders_total", "Order RPCs to executors by kind and result.", ("kind", "result"))
_seconds = metrics.histogram("toban_order_seconds", "Duration of an order RPC.", ("kind",))


class ExecutorOrders:
    """`WorkerOrders` over gRPC. One object for the life of the process; serials begin again with each term."""

    def __init__(
        self,
        *,
        channels: ChannelPool,
        signer: TicketSigner,
        queue: OrderQueue,
        templates: OrderTemplates,
        secrets: SecretSource,
        directory: ExecutorDirectory,
    ) -> None:
        self._channels = channels
        self._signer = signer
        self._queue = queue
        self._templates = templates
        self._secrets = secrets
        self._directory = directory
        self._epoch = 0
        self._serials: dict[str, int] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def start(
        self, target: Target, term: Term, orders: Sequence[StartOrder], smallest_live_token: int
    ) -> list[StartResult]:
        """Start attempts in requests that fit; raises TobanError when the delivery of the first one is not certain."""
        filled, unfilled = await self._fill_templates(orders)
        opened, closed = await self._open_secrets(filled)
        ready = [order for order in filled if order.key not in closed]
        sign = partial(self._signer.sign, holder=_holder(await self._directory.find(target.incarnation)))
        requests, results = start_requests(target, ready, smallest_live_token, sign, opened)
        results += [StartResult(key, False, TEMPLATE_INVALID, why) for key, why in unfilled.items()]
        results += [StartResult(key, False, SECRET_UNAVAILABLE, why) for key, why in closed.items()]
        for number, request in enumerate(requests):
            try:
                results += await self._start(target, term, request)
            except TobanError as error:
                if number == 0:
                    raise
                _log.warning(
                    "some starts not delivered; they are sent again",
                    worker_id=target.worker_id,
                    orders=sum(len(rest.orders) for rest in requests[number:]),
                    error=error.message,
                )
                break
        return results

    async def _fill_templates(self, orders: Sequence[StartOrder]) -> tuple[Sequence[StartOrder], dict[AttemptKey, str]]:
        """The orders that can be sent, and why others cannot. Without templates nothing is done."""
        wanted = [order for order in orders if order.templated]
        if not wanted:
            return orders, {}
        found = await self._templates.expanded(wanted)
        made = [found.get(order.key, order) for order in orders]
        refused = {key: why for key, why in found.items() if isinstance(why, str)}
        return [order for order in made if not isinstance(order, str)], refused

    async def _open_secrets(
        self, orders: Sequence[StartOrder]
    ) -> tuple[dict[AttemptKey, Sequence[SecretFile]], dict[AttemptKey, str]]:
        """The values for the orders that have secrets, and why some cannot have theirs."""
        uses = [SecretUse(key=one.key, job=one.job_name, secrets=one.secrets) for one in orders if one.secrets]
        if not uses:
            return {}, {}
        found = await self._secrets.values(uses)
        refused = {key: one.problem for key, one in found.items() if one.problem}
        return {key: one.files for key, one in found.items() if not one.problem}, refused

    async def _start(self, target: Target, term: Term, request: StartJobRequest) -> list[StartResult]:
        async def send(stub: Any, serial: int) -> list[StartResult]:
            request.header.CopyFrom(header(term.epoch, serial, target.incarnation))
            answer = await unary(stub.StartJob, request, timeout=START_SECONDS)
            return [
                StartResult(AttemptKey(item.key.run_id, item.key.token), item.accepted, item.refusal, item.message)
                for item in answer.results
            ]

        return await self._in_turn("start", target, term, send)

    async def cancel(self, target: Target, term: Term, orders: Sequence[CancelOrder]) -> dict[AttemptKey, str]:
        """Cancel attempts; what cannot be delivered is queued."""

        async def send(stub: Any, serial: int) -> dict[AttemptKey, str]:
            answer = await unary(stub.CancelJob, cancel_request(target, term, serial, orders), timeout=ORDER_SECONDS)
            return {AttemptKey(item.key.run_id, item.key.token): item.result for item in answer.results}

        payloads = {
            order.key: {
                "mode": order.mode,
                "grace_seconds": order.grace_seconds,
                "reason": order.reason,
                "force": order.force,
            }
            for order in orders
        }
        return await self._or_queue("cancel", target, term, payloads, send)

    async def revoke(self, target: Target, term: Term, keys: Sequence[AttemptKey]) -> dict[AttemptKey, str]:
        """Take attempts back; what cannot be delivered is queued."""

        async def send(stub: Any, serial: int) -> dict[AttemptKey, str]:
            answer = await unary(stub.Revoke, revoke_request(target, term, serial, keys), timeout=ORDER_SECONDS)
            return {AttemptKey(item.key.run_id, item.key.token): item.result for item in answer.results}

        return await self._or_queue("revoke", target, term, {key: {} for key in keys}, send)

    async def ping(self, incarnation: str, address: str) -> str | None:
        """The incarnation that answers at `address` within PING_SECONDS; None for no answer."""
        try:
            stub = await self._stub(incarnation, address)
            answered: str = (await unary(stub.Ping, PingRequest(), timeout=PING_SECONDS)).incarnation
        except TobanError:
            return None
        return answered

    async def usage(self, target: Target, key: AttemptKey) -> list[UsageSample]:
        """What the processes of an attempt use, oldest first. Raises TobanError, after PING_SECONDS without an answer."""
        stub = await self._stub(target.incarnation, target.address)
        request = GetUsageRequest(key=key_to_pb(key))
        answer = await unary(stub.GetUsage, request, timeout=PING_SECONDS)
        return [usage_from_pb(sample) for sample in answer.samples]

    async def _in_turn(self, kind: str, target: Target, term: Term, send: Callable[[Any, int], Awaitable[R]]) -> R:
        async with self._turns[target.incarnation]:
            serial = self._draw(target, term)
            stub = await self._stub(target.incarnation, target.address)
            with _seconds.labels(kind).time():
                try:
                    answer = await send(stub, serial)
                except TobanError as error:
                    _calls.labels(kind, error.code.value).inc()
                    raise
            _calls.labels(kind, "ok").inc()
            return answer

    async def _stub(self, incarnation: str, address: str) -> Any:
        """A stub for the executor at this address. Calls fail unless its certificate is of the group that the incarnation registered with."""
        group = (await self._directory.find(incarnation)).group
        return self._channels.stub(WorkerServiceStub, address, executor_name(group))

    async def _or_queue(
        self,
        kind: str,
        target: Target,
        term: Term,
        payloads: Mapping[AttemptKey, Mapping[str, Any]],
        send: Callable[[Any, int], Awaitable[dict[AttemptKey, str]]],
    ) -> dict[AttemptKey, str]:
        try:
            return await self._in_turn(kind, target, term, send)
        except TobanError as error:
            if error.code not in _UNDELIVERED:
                raise
            _log.warning(
                "order not delivered; queued for the next heartbeat",
                kind=kind,
                worker_id=target.worker_id,
                error=error.message,
            )
        await self._queue.add(term, target, kind, self._draw(target, term), payloads)
        return dict.fromkeys(payloads, QUEUED)

    def _draw(self, target: Target, term: Term) -> int:
        if term.epoch != self._epoch:
            self._epoch, self._serials = term.epoch, {}
            self._turns = defaultdict(asyncio.Lock, {key: lock for key, lock in self._turns.items() if lock.locked()})
        serial = self._serials[target.incarnation] = self._serials.get(target.incarnation, 0) + 1
        return serial


def _holder(facts: ExecutorFacts) -> TicketHolder:
    """Who may present the log tickets of an incarnation."""
    if not facts.proves_log_key:
        return ANYBODY
    return TicketHolder(key_hash=facts.key_hash, instance_hash=facts.secret_hash or b"", group=facts.group)
