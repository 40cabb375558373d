"""Epochs that executors present above the leader's: proven, or refused with the remedy (docs/fencing.md 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from toban_coordinator.app.executors.incarnation_keys import valid_incarnation
from toban_coordinator.decide.executors.epoch_claim import Known, Verdict, judge
from toban_coordinator.store.cluster import epoch_claims as store
from toban_coordinator.store.cluster import leader
from toban_coordinator.store.executors import executors
from toban_domain.epoch import EpochExhausted, EpochProof
from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_observability.log_throttle import LogThrottle
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_store.errors import StoreError
from toban_store.pool import Pool
from toban_store.tx import tx

_log = get_logger(__name__)
_refused = metrics.counter(
    "toban_epochs_refused_total",
    "Executor calls rejected because they presented an epoch above the leader's without proof, by reason.",
    ("reason",),
)
for _reason in ("unsigned", "forged", "unproven", "exhausted"):
    _refused.labels(_reason)
_lost = metrics.counter(
    "toban_lost_commits_total",
    "Proofs that PostgreSQL lost commits without a fail-over: signed grants that it does not hold. Each consumes a generation of epochs.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Presented:
    """What came with a call: the content, believed only after `verify()`, which raises TobanError when no coordinator of ours signed it."""

    proof: EpochProof
    verify: Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The highest epoch that an executor knows, and who it is. `instance` is empty in a heartbeat: only its own incarnation counts there."""

    epoch: int
    presented: Presented | None
    incarnation: str
    node_id: str = ""
    instance: str = ""


class EpochClaims:
    """Any coordinator decides: the leader row is raised by compare-and-set."""

    def __init__(self, *, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._throttle = LogThrottle()

    async def check(self, claim: Claim) -> None:
        """Returns when the leader row's epoch covers the claim, raised if the proof demands it.

        Raises EPOCH_UNPROVEN with the remedy; StoreError and CONFLICT when nothing could be decided.
        """
        presented = claim.presented
        facts = await store.facts(self._pool, _named(presented))
        proof, reason, why = _verified(claim, facts)
        known = Known(epoch=facts.epoch, settled=facts.settled, now=facts.server_time, grant_seq=facts.grant_seq)
        try:
            verdict = judge(claim.epoch, proof, known)
        except EpochExhausted:
            await self._refuse(claim, facts, "exhausted", "no generation of epochs is left above it")
        if verdict.raise_to and proof is not None:
            await self._raise(verdict, proof, facts)
        if not verdict.believed:
            await self._refuse(claim, facts, reason, why)

    async def adopt_nonce(self, presented: Presented | None, grant: executors.Grant, nonce: int) -> bool:
        """Takes over a nonce that the row does not know, on a coordinator's word: it was signed with a later grant than the row has, and the
        cluster is not settled, so PostgreSQL may have lost that grant. Raises StoreError."""
        proof = presented.proof if presented else None
        if (
            proof is None
            or presented is None
            or not nonce
            or proof.nonce != nonce
            or proof.grant_seq <= grant.grant_seq
        ):
            return False
        if (proof.cluster_id, proof.incarnation) != (grant.cluster_id, grant.incarnation):
            return False
        try:
            presented.verify()
        except TobanError:
            return False
        return await executors.adopt_nonce(self._pool, grant.incarnation, nonce=nonce, grant_seq=proof.grant_seq)

    async def _raise(self, verdict: Verdict, proof: EpochProof, facts: store.Facts) -> None:
        async with tx(self._pool) as t:
            if not await leader.raise_epoch(t, observed=facts.epoch, epoch=verdict.raise_to):
                raise TobanError(ErrorCode.CONFLICT, "the leader's epoch changed meanwhile; send it again")
            await store.forget(t)
        told = {
            "incarnation": proof.incarnation,
            "epoch": proof.epoch,
            "before": facts.epoch,
            "after": verdict.raise_to,
        }
        if verdict.lost_commits:
            _lost.inc()
            _log.error(
                "PostgreSQL lost commits: it does not hold a signed grant; a new generation of epochs begins",
                grant_seq=proof.grant_seq,
                stored=facts.grant_seq,
                **told,
            )
        else:
            _log.warning("PostgreSQL was restored below a signed epoch; a new generation of epochs begins", **told)

    async def _refuse(self, claim: Claim, facts: store.Facts, reason: str, why: str) -> NoReturn:
        _refused.labels(reason).inc()
        # A caller that means harm calls hundreds of times a second.
        if (suppressed := self._throttle.admit(reason, self._clock.monotonic())) is not None:
            _log.error(
                "executor presented an epoch above the leader's without proof",
                incarnation=claim.incarnation,
                node_id=claim.node_id,
                epoch_max=str(claim.epoch),
                leader_epoch=str(facts.epoch),
                reason=why,
                not_logged=suppressed,
            )
        if claim.instance:
            noted = store.Refused(instance=claim.instance, node_id=claim.node_id, epoch=claim.epoch, reason=why)
            try:
                await store.note(self._pool, noted)
            except StoreError as error:
                _log.warning("could not keep a refused epoch for doctor", error=error.message)
        raise TobanError(
            ErrorCode.EPOCH_UNPROVEN,
            f"this executor knows epoch {claim.epoch}, above the leader's {facts.epoch}, and cannot prove it: {why}; "
            f"run `toban cluster adopt-epoch {claim.epoch}` if its state directory is of this cluster, else give it a new one",
        )


def _named(presented: Presented | None) -> str | None:
    try:
        return None if presented is None else valid_incarnation(presented.proof.incarnation)
    except TobanError:
        return None


def _verified(claim: Claim, facts: store.Facts) -> tuple[EpochProof | None, str, str]:
    """The proof if it is one for this caller; the reason for metrics and for people if the claim turns out to be above it."""
    if claim.presented is None:
        return None, "unsigned", "it has no signed epoch"
    proof = claim.presented.proof
    if proof.cluster_id != facts.cluster_id:
        return None, "forged", "its signed epoch is of another cluster"
    if not _belongs(claim, proof, facts):
        return None, "forged", "its signed epoch is of another executor"
    try:
        claim.presented.verify()
    except TobanError as error:
        return None, "forged", error.message
    return (
        proof,
        "unproven",
        "its signed epoch is lower, or older than an hour while PostgreSQL shows no sign of a restore",
    )


def _belongs(claim: Claim, proof: EpochProof, facts: store.Facts) -> bool:
    """A new incarnation presents one of an earlier incarnation of its state directory, which a restored database may not know."""
    if not claim.instance:
        return proof.incarnation == claim.incarnation
    return facts.instance is None or facts.instance == claim.instance
