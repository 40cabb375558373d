"""Epochs that executors present, with real signatures over a real PostgreSQL (docs/fencing.md 3.2)."""

from dataclasses import replace

import pytest

from toban_coordinator.app.executors.epoch_claims import Claim, EpochClaims, Presented
from toban_coordinator.store.cluster import epoch_claims
from toban_coordinator.store.executors import executors
from toban_domain.epoch import Epoch, EpochProof
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_store.tx import tx
from toban_testing.executor_rows import register
from toban_transport.signed_epoch import EpochSigner, EpochVerifier
from toban_transport.tls import TlsFiles

IDS = IdSource()


@pytest.fixture
def claims(pool):
    return EpochClaims(pool=pool, clock=SystemClock())


@pytest.fixture
def presented(tls):
    """What a caller presents, signed with the key of `service`."""
    verifier = EpochVerifier(TlsFiles(tls / "coordinator"), "toban.internal")

    def made(proof, service="coordinator"):
        message = EpochSigner(TlsFiles(tls / service)).sign(proof)
        return Presented(proof=proof, verify=lambda: verifier.verify(message))

    return made


@pytest.fixture
async def granted(pool, term):
    """A proof of a registered incarnation's second grant, as a coordinator has signed it."""
    incarnation = await register(pool)
    for echo in (0, 1):
        grant = (await executors.grant(pool, [executors.Beat(incarnation=incarnation, echo=echo)]))[incarnation]
    return EpochProof(
        cluster_id=grant.cluster_id,
        epoch=grant.leader_epoch,
        incarnation=incarnation,
        grant_seq=grant.grant_seq,
        signed_at=grant.granted_at,
    )


async def row(sql):
    [(epoch, settled)] = await sql("SELECT epoch, scheduler.is_settled(l) FROM scheduler.leader l")
    return epoch, settled


def heartbeat(proof, shown, epoch=0):
    return Claim(epoch=epoch or proof.epoch, presented=shown, incarnation=proof.incarnation, node_id="n1")


def registering(proof, shown, **changes):
    fields = {"epoch": proof.epoch, "instance": "x1", "incarnation": IDS.uuid()}
    return Claim(**{**fields, "presented": shown, "node_id": "n1", **changes})


async def refused(claims, claim):
    with pytest.raises(TobanError) as caught:
        await claims.check(claim)
    assert caught.value.code is ErrorCode.EPOCH_UNPROVEN
    return caught.value.message


async def test_what_is_signed_with_a_grant_is_what_postgresql_holds(granted, term, claims, presented, sql):
    assert (granted.epoch, granted.grant_seq) == (term.epoch, 2)
    await claims.check(heartbeat(granted, presented(granted)))
    assert await row(sql) == (term.epoch, True)


async def test_lost_commits_take_a_generation_once(granted, term, claims, presented, sql):
    await sql("UPDATE scheduler.executors SET grant_seq = 1, echo_seq = 0")
    await claims.check(heartbeat(granted, presented(granted)))
    above = Epoch(Epoch.unpack(term.epoch).generation + 1, 0).pack()
    assert await row(sql) == (above, False)
    await claims.check(heartbeat(granted, presented(granted)))
    assert await row(sql) == (above, False)


async def test_a_new_incarnation_proves_with_a_grant_whose_row_is_lost(granted, term, claims, presented, sql):
    await sql("DELETE FROM scheduler.executors")
    await claims.check(registering(granted, presented(granted)))
    assert (await row(sql))[0] >> 51 == (term.epoch >> 51) + 1


@pytest.mark.parametrize(
    ("change", "service", "why"),
    [
        ({}, "executor", "not by a coordinator"),
        ({"cluster_id": "00000000-0000-4000-8000-000000000001"}, "coordinator", "of another cluster"),
        ({"incarnation": "00000000-0000-4000-8000-000000000002"}, "coordinator", "of another executor"),
        ({"signed_at": 1_000_000_000}, "coordinator", "older than an hour"),
        ({"grant_seq": 1}, "coordinator", "shows no sign of a restore"),
    ],
    ids=["forged", "other cluster", "other incarnation", "expired", "replayed"],
)
async def test_what_proves_nothing_here_changes_nothing(granted, term, claims, presented, sql, change, service, why):
    """Each of these would be a proof but for the one change: PostgreSQL lacks the second grant."""
    await sql("UPDATE scheduler.executors SET grant_seq = 1, echo_seq = 0")
    wrong = replace(granted, epoch=term.epoch + (1 << 51), **change)
    message = await refused(
        claims, heartbeat(replace(wrong, incarnation=granted.incarnation), presented(wrong, service))
    )
    assert why in message
    assert await row(sql) == (term.epoch, True)


async def test_a_proof_of_another_executor_is_refused_at_registration(granted, term, claims, presented, sql):
    higher = replace(granted, epoch=term.epoch + (1 << 51))
    message = await refused(claims, registering(higher, presented(higher), instance="another"))
    assert "of another executor" in message
    assert await row(sql) == (term.epoch, True)


async def test_in_a_restored_database_a_signed_epoch_counts_at_any_age(granted, term, claims, presented, sql):
    higher = replace(granted, epoch=Epoch(9, 3).pack(), signed_at=1_000_000_000)
    await refused(claims, registering(higher, presented(higher)))
    await sql("UPDATE scheduler.leader SET settled_system_id = 'another'")
    await claims.check(registering(higher, presented(higher)))
    assert await row(sql) == (Epoch(10, 0).pack(), False)


async def test_who_was_refused_is_kept_for_doctor_until_the_epoch_covers_it(pool, term, claims, sql):
    claim = Claim(epoch=term.epoch + (5 << 51), presented=None, incarnation=IDS.uuid(), node_id="n1", instance="x1")
    for _ in range(2):
        assert f"toban cluster adopt-epoch {claim.epoch}" in await refused(claims, claim)
    async with tx(pool) as t:
        [kept] = await epoch_claims.refused(t)
    assert (kept["instance"], kept["epoch"], kept["reason"]) == ("x1", claim.epoch, "it has no signed epoch")
    await sql("UPDATE scheduler.leader SET epoch = epoch + (6::bigint << 51)")
    async with tx(pool) as t:
        assert await epoch_claims.refused(t) == []


async def test_refused_claims_do_not_fill_the_database(pool, term, claims, sql):
    for number in range(105):
        claim = Claim(epoch=1 << 62, presented=None, incarnation=IDS.uuid(), node_id="n", instance=f"x{number}")
        await refused(claims, claim)
    assert await sql("SELECT count(*) FROM scheduler.epoch_claims") == [(100,)]
