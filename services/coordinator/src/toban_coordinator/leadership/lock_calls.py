"""The election's calls to Redis: the leader lock and the degrade flag, as events for the elector. Redis being gone is an outcome, no error."""

from __future__ import annotations

from datetime import datetime

from toban_fencing import election_types as e
from toban_fencing.redis_client import RedisGone
from toban_fencing.redis_locks import LeaderLock
from toban_fencing.worker_registry import Members
from toban_observability import metrics
from toban_observability.log_throttle import LogThrottle
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

_log = get_logger(__name__)
_lock_seconds = metrics.histogram(
    "toban_leader_lock_seconds", "Latency of calls to acquire or renew the leader lock in Redis.", ("call",)
)
_foreign = metrics.counter(
    "toban_leader_lock_conflicts_total",
    "Times the leader lock in Redis named another owner while PostgreSQL confirmed this leader, which overwrote the lock.",
)


class LockCalls:
    """Of one coordinator with this worker id."""

    def __init__(self, *, lock: LeaderLock, members: Members, worker_id: int, clock: Clock) -> None:
        self._lock = lock
        self._members = members
        self._worker_id = worker_id
        self._clock = clock
        self._throttle = LogThrottle()
        self._owner = ""

    async def try_lock(self) -> e.LockTried:
        """Try the lock as a candidate."""
        sent_at = self._clock.boottime()
        outcome = await self._lock.try_lock()
        _lock_seconds.labels("acquire").observe(self._clock.boottime() - sent_at)
        return e.LockTried(sent_at=sent_at, outcome=outcome)

    async def renew(
        self, epoch: int, overwrite: e.Overwrite, *, last_tick: datetime | None
    ) -> tuple[e.RenewDone, int | None]:
        """Renew a term's lock; the event, and the degrade flag that was found while the lock was held."""
        sent_at = self._clock.boottime()
        renewal = await self._lock.renew(epoch, overwrite=overwrite, last_tick=last_tick)
        _lock_seconds.labels("renew").observe(self._clock.boottime() - sent_at)
        self._owner = renewal.owner
        held = renewal.outcome is e.LockOutcome.HELD
        done = e.RenewDone(epoch=epoch, sent_at=sent_at, outcome=renewal.outcome)
        return done, renewal.degrade if held else None

    async def clear_degrade(self) -> bool:
        """Forget the own degrade flag; False when Redis is gone: then the next renewal finds it again."""
        try:
            await self._members.clear_degrade(self._worker_id)
        except RedisGone:
            return False
        return True

    async def release(self, epoch: int) -> None:
        """Give the lock of this epoch back (0: the candidate's)."""
        await self._lock.release(epoch)

    def report_foreign(self, epoch: int) -> None:
        """Count that the lock had another owner although PostgreSQL confirms this epoch, and log it now and then."""
        _foreign.inc()
        suppressed = self._throttle.admit("foreign", self._clock.monotonic())
        if suppressed is not None:
            _log.error(
                "the leader lock in Redis names another owner, but PostgreSQL confirms this leader: the lock is overwritten",
                epoch=epoch,
                owner=self._owner,
                remedy="give each installation a Redis database of its own; docs/runbooks/TobanLeaderLockForeign.md",
                suppressed=suppressed,
            )
