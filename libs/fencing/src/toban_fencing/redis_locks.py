"""The leader's and the sub-leaders' locks in Redis: hints about who should try, never authority (docs/fencing.md 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toban_fencing.election_types import LockOutcome, Overwrite
from toban_fencing.redis_client import RedisGone, RedisLink, script
from toban_fencing.worker_registry import DEGRADE_FIELD, flag_of, worker_key

LOCK_KEY = "scheduler:leader:lock"
EPOCH_KEY = "scheduler:leader:epoch"
LAST_SEEN_KEY = "scheduler:leader:last_seen_ts"
LOCK_TTL_MS = 2000
SUBLEADER_TTL_MS = 3000


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a renewal says: the lock, and the degrade flag in this coordinator's hash (an epoch, 1 for the current one, None when unset).

    `owner` is who holds a FOREIGN lock: printable, at most 64 characters, "" else.
    """

    outcome: LockOutcome
    degrade: int | None = None
    owner: str = ""


class LeaderLock:
    """The lock `<epoch>:<worker id>`; a candidate's epoch is 0. No method raises: Redis being gone is an outcome."""

    def __init__(self, *, link: RedisLink, worker_id: int) -> None:
        self._link = link
        self._worker_id = worker_id
        self._scripts = {name: script(name) for name in ("renew", "set_if_greater")}

    def _owner(self, epoch: int) -> str:
        return f"{epoch}:{self._worker_id}"

    async def try_lock(self) -> LockOutcome:
        """Take the lock as a candidate if it is free."""
        return await self._ask("acquire_lock", self._owner(0), LOCK_TTL_MS)

    async def renew(self, epoch: int, *, overwrite: Overwrite, last_tick: datetime | None = None) -> Renewal:
        """Renew a term's lock, or set it again when it is missing or an older term's; `overwrite` says from whom else it is taken.

        The same round trip mirrors the epoch (only ever raised) and the time of the last finished tick (UTC seconds), and asks for the flag.
        """
        owner = self._owner(epoch)

        async def send(client: Any) -> Any:
            pipe = client.pipeline(transaction=False)
            pipe.eval(self._scripts["renew"], 1, LOCK_KEY, owner, LOCK_TTL_MS, str(int(overwrite)))
            pipe.hget(worker_key(self._worker_id), DEGRADE_FIELD)
            pipe.eval(self._scripts["set_if_greater"], 1, EPOCH_KEY, str(epoch))
            if last_tick is not None:
                pipe.set(LAST_SEEN_KEY, f"{last_tick.timestamp():.3f}")
            answer, flag, *_ = await pipe.execute(raise_on_error=False)
            if isinstance(answer, Exception):
                raise answer
            # An error in the other keys, which anybody may have written, says nothing about the lock.
            return answer, flag if isinstance(flag, str) else None

        try:
            answer, flag = await self._link.call(send)
        except RedisGone:
            return Renewal(LockOutcome.UNREACHABLE)
        if answer == 1:
            return Renewal(LockOutcome.HELD, flag_of(flag))
        return Renewal(LockOutcome.FOREIGN, flag_of(flag), owner=str(answer))

    async def release(self, epoch: int) -> None:
        """Delete the lock if it is ours; otherwise it ends by its TTL."""
        await self._ask("release", self._owner(epoch))

    async def _ask(self, name: str, *args: str | int) -> LockOutcome:
        try:
            mine = await self._link.run(name, LOCK_KEY, *args)
        except RedisGone:
            return LockOutcome.UNREACHABLE
        return LockOutcome.HELD if int(mine) == 1 else LockOutcome.FOREIGN


class SubleaderLock:
    """`scheduler:subleader:{node}:lock`: shows who is the sub-leader of a node. The coordinators' rows in PostgreSQL decide who is."""

    def __init__(self, *, link: RedisLink, node_id: str, worker_id: int) -> None:
        self._link = link
        self._key = f"scheduler:subleader:{node_id}:lock"
        self._owner = str(worker_id)

    async def hold(self) -> bool:
        """Take or renew it; False when another has it or Redis is gone."""
        try:
            return int(await self._link.run("acquire_lock", self._key, self._owner, SUBLEADER_TTL_MS)) == 1
        except RedisGone:
            return False

    async def release(self) -> None:
        """Delete it if it is ours."""
        try:
            await self._link.run("release", self._key, self._owner)
        except RedisGone:
            pass
