"""Heartbeats, batched: everything that waits while one grant commits goes into the next (docs/fencing.md 3.5)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from toban_coordinator.store import executors, queued_orders
from toban_domain.outcome import AttemptKey
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_store.errors import StoreError
from toban_store.pool import Pool

MAX_BATCH = 1000
NO_NEWS = queued_orders.News()
_log = get_logger(__name__)
_grants = metrics.counter(
    "toban_grants_total",
    "Heartbeats by result: granted, withheld (unacknowledged grants, or the executor's state), off.",
    ("result",),
)
_batch = metrics.histogram(
    "toban_grant_batch_seconds", "Time from the start of a batch of heartbeats to its responses."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one heartbeat; `grant` None: the incarnation is off."""

    grant: executors.Grant | None
    news: queued_orders.News = NO_NEWS


@dataclass(frozen=True, slots=True)
class _Waiting:
    beat: executors.Beat
    held: Sequence[AttemptKey]
    answer: asyncio.Future[Answer]


class Granter:
    """Grants are sent at once when idle; while a batch is under way, newcomers wait for the next one."""

    def __init__(self, *, pool: Pool) -> None:
        self._pool = pool
        self._waiting: list[_Waiting] = []
        self._worker: asyncio.Task[None] | None = None

    async def heartbeat(self, beat: executors.Beat, held: Sequence[AttemptKey]) -> Answer:
        """The answer, after the commit. `held` are the attempts that the executor has not finished. Raises TobanError: no grant is certain."""
        waiting = _Waiting(beat, held, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._drain())
        return await waiting.answer

    async def _drain(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            try:
                with _batch.time():
                    answers = await self._serve(batch)
            except Exception as error:
                for waiting in batch:
                    if not waiting.answer.done():
                        waiting.answer.set_exception(error)
                continue
            for waiting in batch:
                if not waiting.answer.done():
                    waiting.answer.set_result(answers[waiting.beat.incarnation])

    async def _serve(self, batch: Sequence[_Waiting]) -> dict[str, Answer]:
        beats: dict[str, executors.Beat] = {}
        held: dict[str, list[AttemptKey]] = {}
        for waiting in batch:
            beat = waiting.beat
            # Two heartbeats of one incarnation share a grant: each counts it from its own send time.
            earlier = beats.get(beat.incarnation, beat)
            beats[beat.incarnation] = replace(
                beat, echo=max(beat.echo, earlier.echo), epoch_max=max(beat.epoch_max, earlier.epoch_max)
            )
            held.setdefault(beat.incarnation, []).extend(waiting.held)
        grants = await executors.grant(self._pool, list(beats.values()))
        _grants.labels("off").inc(len(beats) - len(grants))
        for grant in grants.values():
            _grants.labels("granted" if grant.granted else "withheld").inc()
        news = await self._news(
            {name: keys for name, keys in held.items() if name in grants and (keys or grants[name].has_news)}
        )
        return {name: Answer(grant=grants.get(name), news=news.get(name, NO_NEWS)) for name in beats}

    async def _news(self, held: dict[str, list[AttemptKey]]) -> dict[str, queued_orders.News]:
        if not held:
            return {}
        try:
            return await queued_orders.news(self._pool, held)
        except StoreError as error:
            # The grant stands; the news comes with the next heartbeat.
            _log.warning("heartbeats are answered without orders", error=error.message)
            return {}
