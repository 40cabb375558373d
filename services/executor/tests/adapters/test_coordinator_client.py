"""Which coordinator is asked, and for how long: one that is frozen costs no lease."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from toban_domain.epoch import Epoch
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.settings import SETTINGS
from toban_executor.adapters.coordinator_client import AVOID_SECONDS, CoordinatorClient, call_seconds
from toban_executor.decide.isolation import Isolation
from toban_executor.decide.unknown_incarnation import UnknownIncarnation
from toban_executor.guard.clock import boottime
from toban_executor.ports.coordinator import HeartbeatRequest, Identity, SignedEpoch
from toban_proto.v1.common_pb2 import SignedEpoch as SignedEpochMessage
from toban_proto.v1.common_pb2 import SignedEpochBody
from toban_proto.v1.coordinator_pb2_grpc import add_ExecutorGatewayServicer_to_server
from toban_runtime.clock import SystemClock
from toban_testing.clock import FakeClock
from toban_testing.fake_coordinator import MARGIN_MS, FakeCoordinator
from toban_transport.channel import ChannelPool
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles

LEASE_MS = int(1000 * SETTINGS["executor_lease_seconds"].minimum)
IDENTITY = Identity(
    incarnation="i",
    instance="x",
    node_id="n",
    boot_id="b",
    pid=1,
    grpc_host="127.0.0.1",
    grpc_port=1,
    slots=1,
    most_slots=1,
    ready_slots=1,
    version="0",
    isolation=Isolation("isolated", ("uids 1-2",)),
)
UNKNOWN = TobanError(ErrorCode.INCARNATION_UNKNOWN, "no such incarnation")
HEARTBEAT = HeartbeatRequest(echo=0, epoch_max=0, free_slots=1, held=[])


class Freezing(FakeCoordinator):
    """A leader that takes calls and answers none of them while it is `frozen`."""

    def __init__(self) -> None:
        super().__init__(lease_ms=LEASE_MS)
        self.frozen = False
        self.refusal: TobanError | None = None
        self.generation = 0
        self.asked = 0

    async def Heartbeat(self, request: Any, context: Any) -> Any:
        """As always, or never."""
        self.asked += 1
        if self.frozen:
            await asyncio.Event().wait()
        if self.refusal is not None:
            raise self.refusal
        answer = await super().Heartbeat(request, context)
        if self.generation:
            body = SignedEpochBody(cluster_id="c", epoch=Epoch(self.generation, 1).pack(), incarnation="i", grant_seq=1)
            answer.signed_epoch.body, answer.signed_epoch.signature = body.SerializeToString(), b"s"
        return answer


@dataclass
class Cluster:
    """A client, its clock, and two coordinators of which the first leads."""

    client: CoordinatorClient
    clock: FakeClock
    leader: Freezing
    other: Freezing

    async def beat(self) -> float:
        """Seconds until the answer."""
        begun = boottime()
        await self.client.heartbeat(HEARTBEAT)
        return boottime() - begun


@pytest.fixture
async def cluster(tls: Path) -> AsyncIterator[Cluster]:
    members, servers = (Freezing(), Freezing()), []
    for member in members:
        server = build_server(tls=TlsFiles(tls / "coordinator"), trust_domain="toban.internal", clock=SystemClock())
        server.add(add_ExecutorGatewayServicer_to_server, member)
        member.address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
        servers.append(server)
    leader, other = members
    channels = ChannelPool(tls=TlsFiles(tls / "executor"), trust_domain="toban.internal")
    clock = FakeClock()
    client = CoordinatorClient(
        channels=channels, addresses=[leader.address, other.address], incarnation="i", clock=clock
    )
    await client.register(IDENTITY, 0, ())
    other.registered, other.address = leader.registered, leader.address
    yield Cluster(client, clock, leader, other)
    await channels.close()
    for server in servers:
        await server.stop(0)


async def test_a_frozen_leader_costs_a_part_of_the_lease_and_only_once(cluster: Cluster) -> None:
    leader, other, call = cluster.leader, cluster.other, call_seconds(lease_ms=LEASE_MS, margin_ms=MARGIN_MS)
    await cluster.beat()
    assert (leader.asked, other.asked) == (1, 0)
    leader.frozen = True
    assert call - 0.1 <= await cluster.beat() < (LEASE_MS - MARGIN_MS) / 2000
    assert await cluster.beat() < call - 0.1, "the other one first, for a while"
    assert (leader.asked, other.asked) == (2, 2)
    leader.frozen = False
    await cluster.clock.advance(AVOID_SECONDS + 0.1)
    await cluster.beat()
    assert (leader.asked, other.asked) == (3, 2)


async def test_the_registration_has_the_class_and_what_isolates_jobs(cluster: Cluster) -> None:
    [request] = cluster.leader.registered
    assert (request.isolation, list(request.isolation_details)) == ("isolated", ["uids 1-2"])


async def test_when_all_were_silent_all_are_asked_again(cluster: Cluster) -> None:
    leader, other = cluster.leader, cluster.other
    await cluster.beat()
    leader.frozen = True
    await cluster.beat()
    leader.frozen, other.frozen = False, True
    await cluster.beat()
    assert (leader.asked, other.asked) == (3, 2), "the one that was silent longer ago comes first of the two"


def denial(coordinator: str) -> TobanError:
    return TobanError(ErrorCode.INCARNATION_UNKNOWN, "no such incarnation", detail={"coordinator": coordinator})


@pytest.mark.parametrize("code", [ErrorCode.INVALID_ARGUMENT, ErrorCode.INCARNATION_UNKNOWN])
async def test_what_one_coordinator_refuses_another_one_is_asked(cluster: Cluster, code: ErrorCode) -> None:
    """A leader that shows an old epoch, or sits on a PostgreSQL that lags, must not cost a lease."""
    cluster.leader.refusal = TobanError(code, "by its own view")
    answer = await cluster.client.heartbeat(HEARTBEAT)
    assert answer.granted
    assert (cluster.leader.asked, cluster.other.asked) == (1, 1)


async def code_of(cluster: Cluster) -> ErrorCode:
    with pytest.raises(TobanError) as caught:
        await cluster.client.heartbeat(HEARTBEAT)
    return caught.value.code


async def test_one_denial_is_not_believed_while_another_coordinator_answered_within_the_lease(cluster: Cluster) -> None:
    leader, other = cluster.leader, cluster.other
    leader.refusal = denial("c1")
    await cluster.beat()
    other.refusal = TobanError(ErrorCode.UNAVAILABLE, "PostgreSQL is away")
    assert await code_of(cluster) is ErrorCode.UNAVAILABLE
    await cluster.clock.advance(LEASE_MS / 1000 + 0.1)
    assert await code_of(cluster) is ErrorCode.INCARNATION_UNKNOWN, "no other one has answered for a lease"


async def test_the_registration_counts_as_an_answer(cluster: Cluster) -> None:
    """The first heartbeat goes to a coordinator whose PostgreSQL lags behind that of the one that has registered the incarnation."""
    cluster.leader.refusal = TobanError(ErrorCode.UNAVAILABLE, "it restarts")
    cluster.other.refusal = denial("c2")
    assert await code_of(cluster) is ErrorCode.UNAVAILABLE
    await cluster.clock.advance(LEASE_MS / 1000 + 0.1)
    assert await code_of(cluster) is ErrorCode.INCARNATION_UNKNOWN


async def test_two_denials_are_believed_also_one_after_the_other(cluster: Cluster) -> None:
    leader, other = cluster.leader, cluster.other
    await cluster.beat()
    leader.refusal, other.refusal = denial("c1"), TobanError(ErrorCode.UNAVAILABLE, "PostgreSQL is away")
    await code_of(cluster)
    leader.refusal, other.refusal = other.refusal, denial("c2")
    assert await code_of(cluster) is ErrorCode.INCARNATION_UNKNOWN


async def test_two_denials_of_one_heartbeat_are_believed(cluster: Cluster) -> None:
    await cluster.beat()
    cluster.leader.refusal, cluster.other.refusal = UNKNOWN, UNKNOWN
    assert await code_of(cluster) is ErrorCode.INCARNATION_UNKNOWN


def test_one_coordinator_at_two_addresses_is_one_witness() -> None:
    unknown = UnknownIncarnation(lease_seconds=10.0)
    unknown.note_answer("c:1", 0.0)
    for address in ("a:1", "b:1"):
        unknown.note_error(address, denial("c1"), 1.0)
    assert unknown.judge(UNKNOWN, 1.0).code is ErrorCode.UNAVAILABLE
    unknown.note_error("c:1", denial("c2"), 2.0)
    assert unknown.judge(UNKNOWN, 2.0).code is ErrorCode.INCARNATION_UNKNOWN


async def test_an_answer_takes_back_what_others_denied(cluster: Cluster) -> None:
    cluster.leader.refusal = denial("c1")
    await cluster.beat()
    cluster.leader.refusal, cluster.other.refusal = None, denial("c2")
    await cluster.beat()
    cluster.leader.frozen = True
    assert await code_of(cluster) is ErrorCode.UNAVAILABLE


async def test_the_only_coordinator_is_believed(cluster: Cluster, tls: Path) -> None:
    channels = ChannelPool(tls=TlsFiles(tls / "executor"), trust_domain="toban.internal")
    address, cluster.leader.address = cluster.leader.address, ""
    client = CoordinatorClient(channels=channels, addresses=[address], incarnation="i", clock=cluster.clock)
    await client.register(IDENTITY, 0, ())
    await client.heartbeat(HEARTBEAT)
    cluster.leader.refusal = denial("c1")
    with pytest.raises(TobanError) as caught:
        await client.heartbeat(HEARTBEAT)
    assert caught.value.code is ErrorCode.INCARNATION_UNKNOWN
    await channels.close()


SEEN = replace(HEARTBEAT, signed_epoch=SignedEpoch(epoch=Epoch(3, 9).pack(), incarnation="i", grant_seq=7, message=b""))


async def test_a_grant_from_a_postgresql_that_was_replaced_is_not_taken(cluster: Cluster) -> None:
    cluster.leader.generation, cluster.other.generation = 2, 3
    answer = await cluster.client.heartbeat(SEEN)
    assert answer.granted and answer.signed_epoch is not None
    assert Epoch.unpack(answer.signed_epoch.epoch).generation == 3
    cluster.other.generation = 2
    with pytest.raises(TobanError, match="PostgreSQL that was replaced") as caught:
        await cluster.client.heartbeat(SEEN)
    assert caught.value.code is ErrorCode.UNAVAILABLE


def signed_denial(coordinator: str, generation: int) -> TobanError:
    body = SignedEpochBody(cluster_id="c", epoch=Epoch(generation, 1).pack(), incarnation="i")
    signed = SignedEpochMessage(body=body.SerializeToString(), signature=b"s").SerializeToString()
    detail = {"coordinator": coordinator, "signed_epoch": b64encode(signed).decode()}
    return TobanError(ErrorCode.INCARNATION_UNKNOWN, "no such incarnation", detail=detail)


@pytest.mark.parametrize(("generation", "believed"), [(2, False), (3, True), (4, True)])
async def test_denials_of_a_postgresql_that_was_replaced_are_not_believed(
    cluster: Cluster, generation: int, believed: bool
) -> None:
    """Two coordinators whose sessions lead to a former primary agree, and are wrong."""
    cluster.leader.refusal, cluster.other.refusal = signed_denial("c1", generation), signed_denial("c2", generation)
    with pytest.raises(TobanError) as caught:
        await cluster.client.heartbeat(SEEN)
    assert caught.value.code is (ErrorCode.INCARNATION_UNKNOWN if believed else ErrorCode.UNAVAILABLE)


async def test_a_denial_whose_signed_epoch_cannot_be_read_counts_as_one_of_an_earlier_release(cluster: Cluster) -> None:
    for text in ("", "%%%", "AAAA"):
        detail = {"coordinator": text, "signed_epoch": text}
        cluster.leader.refusal = TobanError(ErrorCode.INCARNATION_UNKNOWN, "no such incarnation", detail=detail)
        cluster.other.refusal = denial("c2")
        with pytest.raises(TobanError) as caught:
            await cluster.client.heartbeat(SEEN)
        assert caught.value.code is ErrorCode.INCARNATION_UNKNOWN
