"""Live workers as Redis shows them: hashes with a TTL, and the flags that operators set there. Views and hints, never the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toban_fencing.redis_client import RedisGone, RedisLink, script

WORKERS_KEY = "scheduler:workers"
SEQUENCE_KEY = "scheduler:worker:id_seq"
DEGRADE_FIELD = "degrade_leader"
RUN_LEASE_MS = 5000
# Of a 63-bit epoch.
MOST_DIGITS = 19
# A degrade flag that its leader never read, since it is dead, ends after this time (ms). Its sub-leader sets it again at each look.
DEGRADE_TTL_MS = 60_000
# Workers that have not been written for this long leave the index (seconds); their hashes expired long before.
INDEX_SECONDS = 3600


def worker_key(worker_id: int) -> str:
    """The hash of one worker (executor or coordinator)."""
    return f"scheduler:worker:{worker_id}"


def flag_of(text: str | None) -> int | None:
    """The epoch that a degrade flag, or any other text there, says; None when it is unset or no epoch."""
    # Anybody may have written it, in any script and length.
    return int(text) if text and len(text) <= MOST_DIGITS and text.isdecimal() else None


class Members:
    """Worker hashes, index and flags. Every method raises RedisGone when Redis does not answer."""

    def __init__(self, *, link: RedisLink) -> None:
        self._link = link

    async def write(
        self, workers: Mapping[int, Mapping[str, str]], *, ttl_seconds: float, now: float, newest_id: int
    ) -> None:
        """Write the hashes of several workers in one pipeline; `now` (UTC seconds) goes into the index.

        The mirror of PostgreSQL's sequence of worker ids is raised to `newest_id`, and never lowered.
        """
        if not workers:
            return
        raise_sequence = script("set_if_greater")

        async def send(client: Any) -> None:
            pipe = client.pipeline(transaction=False)
            for worker_id, fields in workers.items():
                pipe.hset(worker_key(worker_id), mapping=dict(fields))
                pipe.pexpire(worker_key(worker_id), int(ttl_seconds * 1000))
            pipe.zadd(WORKERS_KEY, {str(worker_id): now for worker_id in workers})
            pipe.zremrangebyscore(WORKERS_KEY, "-inf", now - INDEX_SECONDS)
            pipe.eval(raise_sequence, 1, SEQUENCE_KEY, str(newest_id))
            await pipe.execute()

        await self._link.call(send)

    async def remove(self, worker_id: int) -> None:
        """Forget a worker that has stopped."""
        await self._link.call(lambda client: client.delete(worker_key(worker_id)))
        await self._link.call(lambda client: client.zrem(WORKERS_KEY, str(worker_id)))

    async def read(self, worker_id: int) -> dict[str, str]:
        """The hash of a worker; empty when it is not there."""
        found: dict[str, str] = await self._link.call(lambda client: client.hgetall(worker_key(worker_id)))
        return found

    async def set_degrade(self, worker_id: int, epoch: int) -> None:
        """Ask the leader with this worker id to step down from this epoch. The hash of a leader that is gone ends again by itself."""

        async def send(client: Any) -> None:
            pipe = client.pipeline(transaction=False)
            pipe.hset(worker_key(worker_id), DEGRADE_FIELD, str(epoch))
            pipe.pexpire(worker_key(worker_id), DEGRADE_TTL_MS, nx=True)
            await pipe.execute()

        await self._link.call(send)

    async def clear_degrade(self, worker_id: int) -> None:
        """Forget the flag: the epoch it named is over."""
        await self._link.call(lambda client: client.hdel(worker_key(worker_id), DEGRADE_FIELD))

    async def detach_flags(self, worker_ids: Sequence[int]) -> dict[int, str]:
        """The `scheduler:detach:<worker id>` keys that are set, with their values."""
        if not worker_ids:
            return {}

        async def ask(client: Any) -> Any:
            pipe = client.pipeline(transaction=False)
            for worker_id in worker_ids:
                pipe.get(f"scheduler:detach:{worker_id}")
            return await pipe.execute()

        values = await self._link.call(ask)
        return {worker_id: value for worker_id, value in zip(worker_ids, values, strict=True) if value is not None}

    async def clear_detach(self, worker_id: int) -> None:
        """The detach has been carried out: delete its key."""
        await self._link.call(lambda client: client.delete(f"scheduler:detach:{worker_id}"))


class RunLeases:
    """`scheduler:jobrun:lease:<run>`: a mark while the leader assigns a run. Without Redis, PostgreSQL alone decides."""

    def __init__(self, *, link: RedisLink) -> None:
        self._link = link

    async def take(self, run_ids: Sequence[int], epoch: int) -> frozenset[int]:
        """The runs that may be assigned by this epoch: those not marked by a higher one; all of them when Redis is gone."""
        marks: dict[int, int] = {}

        async def mark(client: Any) -> None:
            text, pipe, parts = script("mark_runs"), client.pipeline(transaction=False), _by_slot(client, run_ids)
            for part in parts:
                pipe.eval(text, len(part), *map(_lease_key, part), str(epoch), RUN_LEASE_MS)
            for part, taken in zip(parts, await pipe.execute(), strict=True):
                marks.update(zip(part, taken, strict=True))

        try:
            if run_ids:
                await self._link.call(mark)
        except RedisGone:
            return frozenset(run_ids)
        return frozenset(run_id for run_id, taken in marks.items() if int(taken) == 1)


def _lease_key(run_id: int) -> str:
    return f"scheduler:jobrun:lease:{run_id}"


def _by_slot(client: Any, run_ids: Sequence[int]) -> list[list[int]]:
    """The runs that one call of a script may mark: all of them, and in a Redis Cluster those of one hash slot."""
    slot_of = getattr(client, "keyslot", None)
    if slot_of is None:
        return [list(run_ids)]
    slots: dict[int, list[int]] = {}
    for run_id in run_ids:
        slots.setdefault(slot_of(_lease_key(run_id)), []).append(run_id)
    return list(slots.values())
