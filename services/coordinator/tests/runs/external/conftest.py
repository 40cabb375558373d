"""External workers, as any coordinator serves them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from toban_coordinator.app.external.claim_ends import ClaimEnds, EndOfStep
from toban_coordinator.app.external.claim_heartbeats import ClaimHeartbeats
from toban_coordinator.app.external.claim_log import ClaimLog, LogAnswer
from toban_coordinator.app.external.external_claims import ClaimedStep, ExternalClaims
from toban_coordinator.decide.external.claim_log import SentLine
from toban_coordinator.decide.external.external import Answer
from toban_coordinator.ports.claim_logs import LogPlace
from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey, OutcomeKind
from toban_runtime.clock import SystemClock


class KeptLogs:
    """A log-archiver that keeps each chunk once, by its first line."""

    def __init__(self) -> None:
        self.blocks: dict[tuple[AttemptKey, int], LogBlock] = {}
        self.seals: list[tuple[AttemptKey, int]] = []
        # Runs while lines are stored, before the answer.
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def append(self, place: LogPlace, blocks: Sequence[LogBlock]) -> None:
        for block in blocks:
            self.blocks.setdefault((place.key, block.seq_from), block)
        if self.meanwhile is not None:
            await self.meanwhile()

    def seal(self, place: LogPlace, last_seq: int) -> None:
        self.seals.append((place.key, last_seq))

    def lines(self, key: AttemptKey) -> list[tuple[int, int, str]]:
        """(number, stream, text) of an attempt."""
        found = [
            (block.seq_from + place, block.stream, text)
            for (of, _), block in self.blocks.items()
            if of == key
            for place, text in enumerate(block.text.decode().splitlines())
        ]
        return sorted(found)


@dataclass
class Workers:
    """Any coordinator, as external workers see it."""

    world: Any
    claims: ExternalClaims
    heartbeats: ClaimHeartbeats
    log: ClaimLog
    ends: ClaimEnds
    logs: KeptLogs

    async def claim(
        self, worker: str = "w1", limit: int = 1, wait: float = 0.0, worker_type: str = "transcode"
    ) -> list[ClaimedStep]:
        return await self.claims.claim(worker, worker_type, limit=limit, wait_seconds=wait)

    async def append(self, key: AttemptKey, *texts: str, first: int = 1, worker: str = "w1") -> LogAnswer:
        return await self.log.append(worker, key, first_seq=first, lines=[SentLine(text) for text in texts])

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
    logs = KeptLogs()
    claims = ExternalClaims(pool=world.pool, clock=SystemClock())
    yield Workers(
        world=world,
        claims=claims,
        heartbeats=ClaimHeartbeats(pool=world.pool),
        log=ClaimLog(pool=world.pool, logs=logs),
        ends=ClaimEnds(pool=world.pool, logs=logs, now=world.now),
        logs=logs,
    )
    for line in list(claims._lines.values()):
        if line.task is not None:
            line.task.cancel()
