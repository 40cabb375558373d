"""The leader's and the sub-leaders' locks in Redis: hints about who should try, never authority (docs/fencing.md 3.1)."""

from __future__ import annotations

from datetime import datetime

from toban_fencing.election import LockOutcome
from toban_fencing.redis_link import RedisGone, RedisLink

LOCK_KEY = "scheduler:leader:lock"
EPOCH_KEY = "scheduler:leader:epoch"
LAST_SEEN_KEY = "scheduler:leader:last_seen_ts"
LOCK_TTL_MS = 2000
SUBLEADER_TTL_MS = 3000


class LeaderLock:
    """The lock `<epoch>:<worker id>`; a candidate's epoch is 0. No method raises: Redis being gone is an outcome."""

    def __init__(self, *, link: RedisLink, worker_id: int) -> None:
        self._link = link
        self._worker_id = worker_id

    def _owner(self, epoch: int) -> str:
        return f"{epoch}:{self._worker_id}"

    async def try_lock(self) -> LockOutcome:
        """Take the lock as a candidate if nobody else has it."""
        return await self._ask("claim", self._owner(0), LOCK_TTL_MS)

    async def renew(self, epoch: int, *, overwrite: bool) -> LockOutcome:
        """Renew a term's lock, or set it again when it is missing or an older term's; `overwrite` takes it from a candidate too."""
        return await self._ask("renew", self._owner(epoch), LOCK_TTL_MS, "1" if overwrite else "0")

    async def give_back(self, epoch: int) -> None:
        """Delete the lock if it is ours; otherwise it ends by its TTL."""
        await self._ask("release", self._owner(epoch))

    async def _ask(self, name: str, *args: str | int) -> LockOutcome:
        try:
            mine = await self._link.run(name, LOCK_KEY, *args)
        except RedisGone:
            return LockOutcome.UNREACHABLE
        return LockOutcome.HELD if int(mine) == 1 else LockOutcome.FOREIGN

    async def publish(self, epoch: int, last_tick: datetime | None) -> None:
        """Mirror the epoch (only ever raised) and the time of the last finished tick (UTC seconds). Raises RedisGone."""
        await self._link.run("raise", EPOCH_KEY, str(epoch))
        if last_tick is not None:
            await self._link.call(lambda client: client.set(LAST_SEEN_KEY, f"{last_tick.timestamp():.3f}"))


class SubleaderLock:
    """One standby a node is its sub-leader: whoever holds `scheduler:subleader:{node}:lock`."""

    def __init__(self, *, link: RedisLink, node_id: str, worker_id: int) -> None:
        self._link = link
        self._key = f"scheduler:subleader:{node_id}:lock"
        self._owner = str(worker_id)

    async def hold(self) -> bool:
        """Take or renew it; False when another has it or Redis is gone."""
        try:
            return int(await self._link.run("claim", self._key, self._owner, SUBLEADER_TTL_MS)) == 1
        except RedisGone:
            return False

    async def give_back(self) -> None:
        """Delete it if it is ours."""
        try:
            await self._link.run("release", self._key, self._owner)
        except RedisGone:
            pass
