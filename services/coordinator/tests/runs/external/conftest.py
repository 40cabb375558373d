"""External workers, as any coordinator serves them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from toban_coordinator.app.external.claim_ends import ClaimEnds, EndOfStep
from toban_coordinator.app.external.claim_heartbeats import ClaimHeartbeats
from toban_coordinator.app.external.external_claims import ClaimedStep, ExternalClaims
from toban_coordinator.decide.external.external import Answer
from toban_domain.outcome import AttemptKey, OutcomeKind
from toban_runtime.clock import SystemClock


@dataclass
class Workers:
    """Any coordinator, as external workers see it."""

    world: Any
    claims: ExternalClaims
    heartbeats: ClaimHeartbeats
    ends: ClaimEnds

    async def claim(
        self, worker: str = "w1", limit: int = 1, wait: float = 0.0, worker_type: str = "transcode"
    ) -> list[ClaimedStep]:
        return await self.claims.claim(worker, worker_type, limit=limit, wait_seconds=wait)

    async def complete(self, key: AttemptKey, result: Any = None, worker: str = "w1") -> Answer:
        given = "" if result is None else json.dumps(result)
        return (await self.ends.end(worker, [EndOfStep(key=key, kind=OutcomeKind.SUCCEEDED, result_json=given)]))[0]

    async def fail(self, key: AttemptKey, *, retryable: bool = True, worker: str = "w1") -> Answer:
        end = EndOfStep(key=key, kind=OutcomeKind.FAILED, error="no luck", retryable=retryable)
        return (await self.ends.end(worker, [end]))[0]

    async def acknowledge(self, key: AttemptKey, worker: str = "w1") -> Answer:
        return (await self.ends.end(worker, [EndOfStep(key=key, kind=OutcomeKind.CANCELED)]))[0]

    async def locks_end(self, run: int, state: str) -> None:
        """Turns the leader's loop until the lock of a run has ended."""
        async with asyncio.timeout(60):
            while await self.world.state(run) != state:
                await self.world.turn("external")
                await asyncio.sleep(0.1)


@pytest.fixture
async def workers(world: Any) -> AsyncIterator[Workers]:
    claims = ExternalClaims(pool=world.pool, clock=SystemClock())
    yield Workers(
        world=world,
        claims=claims,
        heartbeats=ClaimHeartbeats(pool=world.pool),
        ends=ClaimEnds(pool=world.pool, now=world.now),
    )
    for line in list(claims._lines.values()):
        if line.task is not None:
            line.task.cancel()
