"""Cancels of external steps: an offer is taken back, and a claim may be extended for a grace only."""

from __future__ import annotations

from collections.abc import Collection

from toban_coordinator.decide.external import external as decide
from toban_coordinator.store.external import external_claims
from toban_coordinator.store.runs import runs_finish
from toban_domain.job import JobSpec
from toban_store.tx import Tx


async def withdraw_offers(t: Tx, runs: Collection[int], why: str) -> set[int]:
    """WAITING_WORKER, not claimed → PENDING; those that moved."""
    offers = await external_claims.lock_unclaimed(t, runs)
    return await runs_finish.release(t, [decide.withdraw(run, why) for run in offers])


def hold_seconds(spec: JobSpec, step: int, mode: str) -> float | None:
    """For how long a cancelled claim may still be extended; None = until its step ends, because that is not cancelable."""
    if mode == "kill":
        return 0.0
    return spec.cancel.grace_seconds if spec.steps[step].cancelable else None
