"""Orders to an executor over real mTLS: serials, tickets, and what happens to orders that cannot be delivered."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from toban_coordinator.adapters.executors import ExecutorOrders
from toban_coordinator.app.executors.incarnation_keys import KnownExecutors
from toban_coordinator.app.executors.order_results import UndeliveredOrders
from toban_coordinator.app.placement.order_templates import StoredOrderTemplates
from toban_coordinator.ports.orders import CancelOrder, StartOrder, Target
from toban_coordinator.ports.secrets import SecretValues
from toban_coordinator.store.cluster import leader
from toban_coordinator.store.executors import executors
from toban_coordinator.store.placement import queued_orders as queue
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import LogSpec, StepSpec
from toban_domain.outcome import AttemptKey
from toban_domain.secret import SecretFile, SecretRef
from toban_domain.usage import UsageSample
from toban_proto.v1 import common_pb2
from toban_proto.v1 import executor_pb2 as pb
from toban_proto.v1.executor_pb2_grpc import WorkerServiceServicer, add_WorkerServiceServicer_to_server
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_testing.kept_sessions import kept_pool
from toban_transport.channel import ChannelPool
from toban_transport.log_ticket import TicketSigner, TicketVerifier
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles

DOMAIN = "toban.internal"
IDS = IdSource()
SAMPLED_AT = datetime(2026, 11, 21, tzinfo=UTC)


class Worker(WorkerServiceServicer):
    """Accepts everything and remembers it."""

    def __init__(self):
        self.seen = []
        self.busy = 0
        self.overlapped = False
        # Starts that it takes before it fails.
        self.most = 1000

    async def _order(self, request):
        self.overlapped |= self.busy > 0
        self.busy += 1
        await asyncio.sleep(0.01)
        self.busy -= 1
        self.seen.append(request)

    async def StartJob(self, request, context):
        if len(self.seen) >= self.most:
            raise TobanError(ErrorCode.UNAVAILABLE, "no more")
        await self._order(request)
        results = [
            pb.StartResult(key=order.key, accepted=order.attempt == 1, refusal="NO_SLOT") for order in request.orders
        ]
        return pb.StartJobResponse(results=results)

    async def CancelJob(self, request, context):
        await self._order(request)
        return pb.CancelJobResponse(results=[pb.CancelResult(key=o.key, result="cancelling") for o in request.orders])

    async def Revoke(self, request, context):
        await self._order(request)
        return pb.RevokeResponse(results=[pb.RevokeResult(key=key, result="gone") for key in request.keys])

    async def Ping(self, request, context):
        return pb.PingResponse(incarnation="me")

    async def GetUsage(self, request, context):
        sample = common_pb2.UsageSample(cpu_seconds=1.5, memory_bytes=4096, processes=1)
        sample.at.FromDatetime(SAMPLED_AT)
        return pb.GetUsageResponse(samples=[sample] if request.key.run_id == 7 else [])


class Vault:
    """Has one secret."""

    async def values(self, uses):
        file = SecretFile(file="db", file_env="DB_FILE", value=b"hunter22")
        good = SecretValues(files=[file])
        return {use.key: good if use.secrets[0].name == "db" else SecretValues(problem="there is none") for use in uses}


@pytest.fixture
async def worker(tls):
    made = Worker()
    server = build_server(tls=TlsFiles(tls / "executor"), trust_domain=DOMAIN, clock=SystemClock())
    server.add(add_WorkerServiceServicer_to_server, made)
    made.address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    yield made
    await server.stop(0)


@pytest.fixture
async def setting(pg_url, tls, worker):
    """(orders, term, target, pool): an executor is registered under the target's incarnation."""
    pool = await kept_pool(pg_url, max_size=4)
    channels = ChannelPool(tls=TlsFiles(tls / "coordinator"), trust_domain=DOMAIN)
    me = leader.Contender(incarnation=IDS.uuid(), worker_id=99, address="a:1", node_id="n1")
    term = (await leader.take_over(pool, me, observed=0, beat=0)).term
    new = executors.Registration(
        incarnation=IDS.uuid(), instance="x", node_id="n", boot_id="b", pid=1, grpc_host="h", grpc_port=1, slots=1
    )
    row = await executors.register(pool, new, key_hash=b"", lease_ms=10_000)
    made = ExecutorOrders(
        channels=channels,
        signer=TicketSigner(TlsFiles(tls / "coordinator")),
        queue=UndeliveredOrders(pool=pool),
        templates=StoredOrderTemplates(pool=pool),
        secrets=Vault(),
        directory=KnownExecutors(pool=pool),
    )
    yield made, term, Target(new.incarnation, row.worker_id, worker.address), pool
    await channels.close()
    await pool.close()


def start_order(number, attempt=1, **fields):
    order = StartOrder(
        key=AttemptKey(number, 1000 + number),
        attempt=attempt,
        job_name="j",
        definition_version=1,
        steps=(StepSpec(id="s", body={"argv": ["true"]}),),
        log_day="2026-11-21",
        slot=datetime(2026, 11, 21, tzinfo=UTC),
        logs=LogSpec(max_mb=2, max_lines_per_second=3, redact=("TOKEN",)),
    )
    return replace(order, **fields)


@pytest.mark.seed(29, 73)
async def test_a_start_carries_authority_and_a_ticket(setting, worker, tls):
    orders, term, target, _ = setting
    results = await orders.start(target, term, [start_order(1), start_order(2, attempt=2)], 7)
    assert [(result.accepted, result.gone) for result in results] == [(True, False), (False, True)]
    (request,) = worker.seen
    assert (request.header.leader_epoch, request.header.serial) == (term.epoch, 1)
    assert request.header.incarnation == target.incarnation
    assert request.smallest_live_token == 7
    assert request.orders[0].logs == pb.LogRules(max_bytes=2 << 20, max_lines_per_second=3, redact=["TOKEN"])
    verifier = TicketVerifier(TlsFiles(tls / "log-archiver"), DOMAIN)
    body = verifier.verify(request.orders[0].log_ticket, now=SystemClock().wall())
    assert (body.run_id, body.token, body.incarnation, body.log_day) == (1, 1001, target.incarnation, "2026-11-21")


async def test_secrets_are_in_the_message_of_their_order_only(setting, worker):
    """An order without what it needs is not sent."""
    orders, term, target, _ = setting
    batch = [
        start_order(1),
        start_order(2, secrets=(SecretRef(name="db"),)),
        start_order(3, secrets=(SecretRef(name="other"),)),
    ]
    results = {result.key.run_id: result for result in await orders.start(target, term, batch, 7)}
    (request,) = worker.seen
    sent = {order.key.run_id: list(order.secrets) for order in request.orders}
    assert sent == {1: [], 2: [pb.SecretFile(file="db", file_env="DB_FILE", value=b"hunter22")]}
    assert (results[3].accepted, results[3].refusal, results[3].message) == (
        False,
        "SECRET_UNAVAILABLE",
        "there is none",
    )
    assert "hunter22" not in repr(batch)


@pytest.mark.seed(37)
async def test_serials_grow_and_orders_never_overlap(setting, worker):
    orders, term, target, _ = setting
    cancel = CancelOrder(key=AttemptKey(1, 2), mode="kill", grace_seconds=1.0)
    await asyncio.gather(
        *(orders.start(target, term, [start_order(number)], 0) for number in range(1, 6)),
        orders.cancel(target, term, [cancel]),
        orders.revoke(target, term, [AttemptKey(3, 4)]),
    )
    serials = [request.header.serial for request in worker.seen]
    assert serials == sorted(set(serials))
    assert {request.header.leader_epoch for request in worker.seen} == {term.epoch}
    assert not worker.overlapped


@pytest.mark.seed(73)
async def test_answers_to_cancel_and_revoke(setting):
    orders, term, target, _ = setting
    cancel = CancelOrder(key=AttemptKey(1, 2), mode="kill", grace_seconds=1.0)
    assert await orders.cancel(target, term, [cancel]) == {AttemptKey(1, 2): "cancelling"}
    assert await orders.revoke(target, term, [AttemptKey(3, 4)]) == {AttemptKey(3, 4): "gone"}
    assert await orders.ping(target.incarnation, target.address) == "me"


async def test_what_cannot_be_delivered_is_queued_or_raised(setting, free_port):
    orders, term, target, pool = setting
    away = Target(target.incarnation, target.worker_id, f"127.0.0.1:{free_port}")
    cancel = CancelOrder(key=AttemptKey(1, 2), mode="kill", grace_seconds=1.0)
    assert await orders.cancel(away, term, [cancel]) == {AttemptKey(1, 2): "queued"}
    assert await orders.revoke(away, term, [AttemptKey(3, 4)]) == {AttemptKey(3, 4): "queued"}
    waiting = (await queue.updates(pool, {target.incarnation: []}))[target.incarnation].orders
    assert [(order.kind, order.run_id, order.token) for order in waiting] == [("cancel", 1, 2), ("revoke", 3, 4)]
    with pytest.raises(TobanError) as caught:
        await orders.start(away, term, [start_order(1)], 0)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert await orders.ping(away.incarnation, away.address) is None


async def test_starts_with_large_payloads_are_cut_into_messages_that_fit(setting, worker):
    orders, term, target, _ = setting
    payload = '{"text":"' + "x" * (32 * 1024) + '"}'
    batch = [start_order(number, payload_json=payload) for number in range(1, 201)]
    results = await orders.start(target, term, batch, 7)
    assert [(result.key, result.accepted) for result in results] == [(order.key, True) for order in batch]
    assert len(worker.seen) > 1 and max(request.ByteSize() for request in worker.seen) < 1.1 * 2**20
    assert {request.smallest_live_token for request in worker.seen} == {7}
    serials = [request.header.serial for request in worker.seen]
    assert serials == sorted(set(serials))


async def test_a_later_message_that_fails_leaves_the_answers_to_the_first(setting, worker):
    orders, term, target, _ = setting
    worker.most = 1
    payload = '{"text":"' + "x" * (32 * 1024) + '"}'
    batch = [start_order(number, payload_json=payload) for number in range(1, 101)]
    results = await orders.start(target, term, batch, 0)
    assert 0 < len(results) < len(batch)
    assert [result.key for result in results] == [order.key for order in batch[: len(results)]]


@pytest.mark.parametrize(
    "bad", [{"payload_json": "\ud800"}, {"timeout_seconds": 2**40}, {"env": {"A": "x" * 4_100_000}}]
)
async def test_an_order_of_which_no_message_can_be_made_is_refused_alone(setting, worker, bad):
    orders, term, target, _ = setting
    results = await orders.start(target, term, [start_order(1), start_order(2, **bad), start_order(3)], 0)
    answers = {result.key.run_id: result.refusal for result in results if not result.accepted}
    assert answers == {2: "ORDER_INVALID"}
    assert [order.key.run_id for request in worker.seen for order in request.orders] == [1, 3]


async def test_an_executor_is_asked_what_an_attempt_uses(setting, worker):
    made, _, target, _ = setting
    assert await made.usage(target, AttemptKey(7, 1)) == [UsageSample(SAMPLED_AT, 1.5, 4096, 1)]
    assert await made.usage(target, AttemptKey(8, 1)) == []
    with pytest.raises(TobanError):
        await made.usage(replace(target, address="127.0.0.1:1"), AttemptKey(7, 1))
