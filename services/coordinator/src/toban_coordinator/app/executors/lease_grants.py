"""Heartbeats, batched: everything that waits while one grant commits goes into the next (docs/fencing.md 3.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from toban_coordinator.store.executors import executors
from toban_coordinator.store.placement import queued_orders
from toban_coordinator.store.runs import orphan_waits, unresolved_attempts
from toban_coordinator.store.runs.unresolved_attempts import Named
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
    "Heartbeats by result: granted, withheld (unacknowledged grants, the executor's state, or the attempts of its frozen jobs could not be read), "
    "stale_nonce (another copy of the executor has the lease, or PostgreSQL lost the last grant), off.",
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
    # None: the executor does not say what else it knows of.
    named: Named | None
    frozen: bool


class LeaseGrants:
    """Grants are sent at once when idle; while a batch is under way, newcomers wait for the next one."""

    def __init__(self, *, pool: Pool) -> None:
        self._pool = pool
        self._group = GroupCommit(self._grant, limits=GroupLimits(max_items=MAX_BATCH), name="lease grants")

    async def heartbeat(
        self, beat: executors.Beat, held: Sequence[AttemptKey], named: Named | None = None, *, frozen: bool = False
    ) -> Answer:
        """The answer, after the commit. `held` are the attempts that the executor has not finished, `named` all that it knows of (None: it does
        not say); with `frozen` ones among them it gets no grant without the list of those that it no longer holds.

        Raises TobanError: no grant is certain.
        """
        return await self._group.submit(_Call(beat, held, named, frozen))

    async def _grant(self, calls: Sequence[_Call]) -> list[Answer]:
        with _batch.time():
            answers: dict[int, Answer] = {}
            for numbers in _rounds(calls):
                answers |= zip(numbers, await self._answers([calls[number] for number in numbers]), strict=True)
        return [answers[number] for number in range(len(calls))]

    async def _answers(self, calls: Sequence[_Call]) -> list[Answer]:
        """The answers to heartbeats of which each incarnation's present one nonce.

        Two may come from copies of the incarnation, so they share no grant: the last one gets it. An executor gives up a call before it
        repeats it.
        """
        beats: dict[str, executors.Beat] = {}
        held: dict[str, list[AttemptKey]] = {}
        last = {call.beat.incarnation: call for call in calls}
        for call in calls:
            beat = call.beat
            earlier = beats.get(beat.incarnation, beat)
            beats[beat.incarnation] = replace(beat, echo=max(beat.echo, earlier.echo))
            held.setdefault(beat.incarnation, []).extend(call.held)
        grants = await executors.grant(self._pool, list(beats.values()))
        wanted = {name: keys for name, keys in held.items() if name in grants and (keys or grants[name].has_updates)}
        named = _named(call for call in calls if call.beat.incarnation in wanted)
        updates = await self._updates(wanted, {name: said.known for name, said in named.items()})
        if updates is None:
            # The other grants stand; the orders go out with the next heartbeat.
            frozen = {call.beat.incarnation for call in calls if call.frozen}
            grants |= {name: replace(grants[name], granted=False) for name in frozen & grants.keys()}
            updates = {}
        off = {name: keys for name, keys in held.items() if name not in grants and keys}
        given_up = await self._given_up(off)
        updates |= {name: replace(NO_UPDATES, not_held=tuple(keys)) for name, keys in given_up.items()}
        answers = []
        for call in calls:
            name = call.beat.incarnation
            grant = grants.get(name)
            if grant is not None and call is not last[name]:
                grant = replace(grant, granted=False)
            answers.append(Answer(grant=grant, updates=updates.get(name, NO_UPDATES)))
            _grants.labels(_result(grant)).inc()
        await self._note({name: said for name, said in named.items() if updates.get(name, NO_UPDATES).unresolved})
        return answers

    async def _given_up(self, off: Mapping[str, Sequence[AttemptKey]]) -> dict[str, list[AttemptKey]]:
        """What jobs with `on_lease_loss: continue` run in vain, on executors that are off."""
        if not off:
            return {}
        try:
            return await orphan_waits.given_up(self._pool, off)
        except StoreError as error:
            # The next heartbeat asks again.
            _log.warning("could not compare the jobs of executors that are off", error=error.message)
            return {}

    async def _note(self, unresolved: Mapping[str, Named]) -> None:
        """Keeps which attempts these incarnations do not name, or name as quarantined."""
        if not unresolved:
            return
        try:
            await unresolved_attempts.note(self._pool, unresolved)
        except StoreError as error:
            # The grant stands; the next heartbeat says it again.
            _log.warning("could not compare a heartbeat with the runs of its executor", error=error.message)

    async def _updates(
        self, held: dict[str, list[AttemptKey]], unanswered: Mapping[str, Sequence[AttemptKey]]
    ) -> dict[str, queued_orders.OrderUpdates] | None:
        """None when they could not be read."""
        if not held:
            return {}
        try:
            return await queued_orders.updates(self._pool, held, unanswered)
        except StoreError as error:
            _log.warning("could not load pending orders; heartbeats answered without them", error=error.message)
            return None


def _rounds(calls: Sequence[_Call]) -> list[list[int]]:
    """The numbers of the calls, one list for each statement: in each, an incarnation presents one nonce."""
    rounds: list[list[int]] = []
    nonces: dict[str, list[int]] = {}
    for number, call in enumerate(calls):
        presented = nonces.setdefault(call.beat.incarnation, [])
        if call.beat.nonce not in presented:
            presented.append(call.beat.nonce)
        place = presented.index(call.beat.nonce)
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(number)
    return rounds


def _result(grant: executors.Grant | None) -> str:
    if grant is None:
        return "off"
    if grant.granted:
        return "granted"
    return "withheld" if grant.nonce_known else "stale_nonce"


def _named(calls: Iterable[_Call]) -> dict[str, Named]:
    """What each incarnation names; what one of its heartbeats names is named. Those that do not name everything are left out."""
    said: dict[str, Named] = {}
    silent = set()
    for call in calls:
        name, named = call.beat.incarnation, call.named
        if named is None:
            silent.add(name)
            continue
        earlier = said.get(name, Named())
        said[name] = Named(
            known=[*earlier.known, *call.held, *named.known], quarantined={**earlier.quarantined, **named.quarantined}
        )
    return {name: named for name, named in said.items() if name not in silent}
