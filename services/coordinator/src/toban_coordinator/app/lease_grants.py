"""Heartbeats, batched: everything that waits while one grant commits goes into the next (docs/fencing.md 3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from toban_coordinator.store import executors, queued_orders
from toban_domain.outcome import AttemptKey
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.group_commit import GroupCommit, GroupLimits
from toban_store.errors import StoreError
from toban_store.pool import Pool

MAX_BATCH = 1000
NO_UPDATES = queued_orders.OrderUpdates()
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
    updates: queued_orders.OrderUpdates = NO_UPDATES


@dataclass(frozen=True, slots=True)
class _Call:
    beat: executors.Beat
    held: Sequence[AttemptKey]


class LeaseGrants:
    """Grants are sent at once when idle; while a batch is under way, newcomers wait for the next one."""

    def __init__(self, *, pool: Pool) -> None:
        self._pool = pool
        self._group = GroupCommit(self._grant, limits=GroupLimits(max_items=MAX_BATCH), name="lease grants")

    async def heartbeat(self, beat: executors.Beat, held: Sequence[AttemptKey]) -> Answer:
        """The answer, after the commit. `held` are the attempts that the executor has not finished. Raises TobanError: no grant is certain."""
        return await self._group.submit(_Call(beat, held))

    async def _grant(self, calls: Sequence[_Call]) -> list[Answer]:
        with _batch.time():
            answers = await self._answers(calls)
        return [answers[call.beat.incarnation] for call in calls]

    async def _answers(self, calls: Sequence[_Call]) -> dict[str, Answer]:
        beats: dict[str, executors.Beat] = {}
        held: dict[str, list[AttemptKey]] = {}
        for call in calls:
            beat = call.beat
            # Two heartbeats of one incarnation share a grant: each counts it from its own send time.
            earlier = beats.get(beat.incarnation, beat)
            beats[beat.incarnation] = replace(
                beat, echo=max(beat.echo, earlier.echo), epoch_max=max(beat.epoch_max, earlier.epoch_max)
            )
            held.setdefault(beat.incarnation, []).extend(call.held)
        grants = await executors.grant(self._pool, list(beats.values()))
        _grants.labels("off").inc(len(beats) - len(grants))
        for grant in grants.values():
            _grants.labels("granted" if grant.granted else "withheld").inc()
        updates = await self._updates(
            {name: keys for name, keys in held.items() if name in grants and (keys or grants[name].has_updates)}
        )
        return {name: Answer(grant=grants.get(name), updates=updates.get(name, NO_UPDATES)) for name in beats}

    async def _updates(self, held: dict[str, list[AttemptKey]]) -> dict[str, queued_orders.OrderUpdates]:
        if not held:
            return {}
        try:
            return await queued_orders.updates(self._pool, held)
        except StoreError as error:
            # The grant stands; the orders go out with the next heartbeat.
            _log.warning("could not load pending orders; heartbeats answered without them", error=error.message)
            return {}
