"""What executors claim of epochs, to a whole coordinator over mTLS (docs/fencing.md 3.2)."""

import re
from base64 import b64decode

import psycopg
import pytest

from toban_domain.epoch import EpochProof
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_proto.v1.common_pb2 import SignedEpoch, SignedEpochBody
from toban_runtime.ids import IdSource
from toban_testing.coordinator_calls import health, registration
from toban_testing.waiting import until_async
from toban_transport.signed_epoch import EpochSigner, EpochVerifier
from toban_transport.tls import TlsFiles


async def leads(call):
    """The epoch in which the coordinator leads."""
    return (await call("coordinator", rpc.PeerStub, "GetStatus", pb.PeerStatusRequest())).epoch


async def counted(process, name):
    """The value of a counter, over all its labels."""
    found = re.findall(rf"^{name}(?:{{.*}})? (.*)$", await health(process, "/metrics"), re.MULTILINE)
    return sum(map(float, found))


async def test_claims_of_an_executor_use_up_no_epochs(call, executor, process, tls, at_most):
    """One certificate of an executor, and what it can sign itself: the leader stays, whatever is claimed.

    On a busy machine it may lose its lock meanwhile; then there is a further term of the same generation.
    """
    incarnation, metadata, registered = executor
    before, refusals = await leads(call), await counted(process, "toban_epochs_refused_total")
    cluster = SignedEpochBody.FromString(registered.signed_epoch.body).cluster_id
    forger = EpochSigner(TlsFiles(tls / "executor"))
    for number in range(1, 201):
        epoch = before + (number << 51)
        proof = EpochProof(cluster_id=cluster, epoch=epoch, incarnation=incarnation, grant_seq=10**6, signed_at=0)
        signed = (None, forger.sign(proof), registered.signed_epoch)[number % 3]
        claim = {"epoch_max": epoch, "signed_epoch": signed}
        # Acknowledges all grants: on a busy machine this takes longer than a lease.
        beat = pb.HeartbeatRequest(incarnation=incarnation, echo=1 << 40, **claim)
        for method, request, more in (("Register", registration(**claim), ()), ("Heartbeat", beat, metadata)):
            with pytest.raises(TobanError, match="toban cluster adopt-epoch") as caught:
                await call("executor", rpc.ExecutorGatewayStub, method, request, more)
            assert caught.value.code is ErrorCode.EPOCH_UNPROVEN
    assert await counted(process, "toban_epochs_refused_total") == refusals + 400
    assert await leads(call) - before <= at_most(0, net=(1 << 51) - 1)


async def test_a_snapshot_that_was_rolled_back_begins_a_generation(call, executor, pg_url, process):
    """Same server, timeline and database; only a signed grant that PostgreSQL does not hold shows what was lost."""
    incarnation, metadata, _answer = executor
    losses, before, signed = await counted(process, "toban_lost_commits_total"), await leads(call), None
    with psycopg.connect(pg_url, autocommit=True) as connection:
        for echo in range(4):
            beat = pb.HeartbeatRequest(incarnation=incarnation, echo=echo, epoch_max=before, signed_epoch=signed)
            answer = await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", beat, metadata)
            assert answer.granted
            signed = signed if echo > 2 else answer.signed_epoch
            if echo == 2:
                connection.execute("UPDATE scheduler.executors SET grant_seq = 1, echo_seq = 1")
        [(settled,)] = connection.execute("SELECT scheduler.is_settled(l) FROM scheduler.leader l").fetchall()
    assert not settled
    await until_async(lambda: leads(call), lambda epoch: epoch >> 51 != before >> 51)
    await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", beat, metadata)
    assert await counted(process, "toban_lost_commits_total") == losses + 1, "the same proof counts once"


async def test_an_executor_keeps_its_lease_over_lost_commits_and_a_copy_does_not(call, executor, pg_url, process):
    """Its nonce is unknown after the loss, and counts by the signature of a later grant, at once."""
    incarnation, metadata, _answer = executor
    held = []

    async def beat(nonce, echo, signed):
        request = pb.HeartbeatRequest(incarnation=incarnation, echo=echo, nonce=nonce, signed_epoch=signed)
        return await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", request, metadata)

    with psycopg.connect(pg_url, autocommit=True) as connection:
        read = "SELECT grant_seq, echo_seq, nonce, nonces FROM scheduler.executors"
        lost = "UPDATE scheduler.executors SET grant_seq = %s, echo_seq = %s, nonce = %s, nonces = %s"
        answer = await beat(0, 0, None)
        for _ in range(4):
            held.append((answer.nonce, answer.grant_seq, answer.signed_epoch))
            answer = await beat(*held[-1])
            assert answer.granted
            if len(held) == 2:
                [kept] = connection.execute(read).fetchall()
        stale = await beat(*held[1])
        assert (stale.granted, stale.superseded, stale.nonce) == (False, True, 0), "a machine that was rolled back"
        connection.execute(lost, kept)
        last = await beat(answer.nonce, answer.grant_seq, answer.signed_epoch)
        assert (last.granted, last.superseded) == (True, False)
        assert last.grant_seq == answer.grant_seq + 1
        older = await beat(*held[3])
        assert (older.granted, older.superseded) == (False, True)
    assert await counted(process, "toban_lost_commits_total") >= 1


@pytest.mark.parametrize(
    ("other", "superseded"),
    [({}, True), ({"incarnation": "00000000-0000-4000-8000-000000000002"}, False), ({"cluster_id": "another"}, False)],
    ids=["own", "of an earlier incarnation", "of another cluster"],
)
async def test_only_a_proof_of_its_own_shows_that_a_copy_has_the_lease(call, executor, tls, other, superseded):
    """An executor keeps the proof of its highest epoch, which may be of an earlier incarnation: its grants are counted apart."""
    incarnation, metadata, registered = executor
    first = pb.HeartbeatRequest(incarnation=incarnation, echo=0)
    answer = await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", first, metadata)
    body = SignedEpochBody.FromString(registered.signed_epoch.body)
    fields = {"cluster_id": body.cluster_id, "incarnation": incarnation, **other}
    proof = EpochProof(epoch=body.epoch, grant_seq=0, signed_at=body.signed_at, **fields)
    signed = EpochSigner(TlsFiles(tls / "coordinator")).sign(proof)
    beat = pb.HeartbeatRequest(incarnation=incarnation, echo=1, nonce=answer.nonce ^ 1, signed_epoch=signed)
    found = await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", beat, metadata)
    assert (found.granted, found.superseded) == (False, superseded)


@pytest.mark.parametrize("signed", [False, True])
async def test_an_epoch_that_cannot_be_is_refused_before_anything_is_written(call, executor, pg_url, signed):
    _incarnation, _metadata, registered = executor
    request = registration(epoch_max=-1, signed_epoch=registered.signed_epoch if signed else None)
    with pytest.raises(TobanError, match="63-bit epoch") as caught:
        await call("executor", rpc.ExecutorGatewayStub, "Register", request)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    with psycopg.connect(pg_url) as connection:
        assert connection.execute("SELECT count(*) FROM scheduler.executors").fetchall() == [(1,)]


@pytest.mark.usefixtures("production_bounds")
async def test_a_nonce_without_its_signature_is_not_adopted(call, executor, pg_url, process):
    incarnation, metadata, _answer = executor
    first = pb.HeartbeatRequest(incarnation=incarnation, echo=0)
    answer = await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", first, metadata)
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute("UPDATE scheduler.executors SET grant_seq = 0, echo_seq = 0, nonces = '{}'")
        connection.execute("UPDATE scheduler.leader SET settled_timeline = settled_timeline + 1")
        for nonce, signed in ((answer.nonce, None), (answer.nonce + 1, answer.signed_epoch)):
            claim = pb.HeartbeatRequest(incarnation=incarnation, echo=1, nonce=nonce, signed_epoch=signed)
            assert not (await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", claim, metadata)).granted


async def test_a_denial_is_signed_with_the_epoch_of_its_database(call, executor, process, tls):
    incarnation = IdSource().uuid()
    metadata = (("toban-incarnation", incarnation), ("toban-incarnation-key", "k"))
    with pytest.raises(TobanError) as caught:
        beat = pb.HeartbeatRequest(incarnation=incarnation)
        await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", beat, metadata)
    assert caught.value.code is ErrorCode.INCARNATION_UNKNOWN
    signed = SignedEpoch.FromString(b64decode(caught.value.detail["signed_epoch"]))
    proof = EpochVerifier(TlsFiles(tls / "executor"), "toban.internal").verify(signed)
    assert (proof.epoch, proof.incarnation, proof.grant_seq) == (await leads(call), incarnation, 0)
