"""What a sub-leader does: watch the leader's stream for evidence of its death, and degrade one that beats but ticks no more."""

from __future__ import annotations

from toban_coordinator.decide.cluster.leader_health import LeaderSigns, StreamEnd, is_death, is_suspect, should_degrade
from toban_coordinator.leadership.leadership import Leadership
from toban_coordinator.ports.leader import LeaderView, ServerClock
from toban_coordinator.ports.peers import Peers
from toban_coordinator.ports.settings import SettingsSource
from toban_coordinator.store.cluster import leader
from toban_domain.errors import TobanError
from toban_fencing.redis_client import RedisGone
from toban_fencing.worker_registry import Members
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_store.pool import Pool
from toban_store.tx import autocommit

IDLE_SECONDS = 0.5
RECONNECT_SECONDS = 0.2
_log = get_logger(__name__)


class Watcher:
    """Follows the leader's Peer.Watch stream while this coordinator is sub-leader."""

    def __init__(self, *, leadership: Leadership, peers: Peers, clock: Clock) -> None:
        self._leadership = leadership
        self._peers = peers
        self._clock = clock
        self._told = 0

    async def run(self) -> None:
        """For ever; cancel to end."""
        while True:
            view = self._leadership.view()
            if view.leading:
                await self._leadership.changed()
                continue
            if view.role != "subleader" or not view.address:
                await self._clock.sleep(IDLE_SECONDS)
                continue
            end = await self._follow(view)
            if end is StreamEnd.BROKEN:
                refused = await self._peers.refused(view.address)
                if is_death(end, reconnect_refused=refused):
                    self._tell(view.epoch)
            await self._clock.sleep(RECONNECT_SECONDS)

    def _tell(self, epoch: int) -> None:
        if epoch != self._told:
            _log.warning("leader is dead: its stream broke and its port refuses connections", epoch=epoch)
            self._told = epoch
        self._leadership.report_leader_death(epoch)

    async def _follow(self, view: LeaderView) -> StreamEnd:
        try:
            async for message in self._peers.watch(view.address):
                if not message.leading:
                    return StreamEnd.STEPPED_DOWN
                if self._leadership.view().leading:
                    return StreamEnd.STEPPED_DOWN
        except TobanError:
            return StreamEnd.BROKEN
        return StreamEnd.STEPPED_DOWN


class Checker:
    """`run_once` is the body of a loop with the tick subleader_check_seconds."""

    def __init__(
        self,
        *,
        pool: Pool,
        leadership: Leadership,
        peers: Peers,
        members: Members,
        now: ServerClock,
        settings: SettingsSource,
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._leadership = leadership
        self._peers = peers
        self._members = members
        self._now = now
        self._told = 0

    async def run_once(self) -> None:
        """Ask a suspect leader; ask it to step down when it does not answer or says that it does not tick.

        Raises TobanError when neither Redis nor PostgreSQL takes that.
        """
        view = self._leadership.view()
        if view.role != "subleader" or not view.address:
            return
        now, stale = self._now.now(), self._settings.known["leader_stale_seconds"]
        still = self._leadership.beat_still_seconds()
        signs = LeaderSigns(last_tick_at=view.last_tick_at, beat_still_seconds=still, ticking=None)
        if not is_suspect(signs, now=now, stale_seconds=stale):
            return
        asked = LeaderSigns(last_tick_at=view.last_tick_at, beat_still_seconds=still, ticking=await self._ticks(view))
        if should_degrade(asked, now=now, stale_seconds=stale):
            await self._degrade(view)

    async def _degrade(self, view: LeaderView) -> None:
        """By its flag in Redis. Through PostgreSQL, with its next beat, when Redis is gone or the flag of an earlier look did not help."""
        asked_before = view.epoch == self._told
        if not asked_before:
            _log.warning("leader no longer ticks: asking it to step down", epoch=view.epoch, worker_id=view.worker_id)
            self._told = view.epoch
        try:
            await self._members.set_degrade(view.worker_id, view.epoch)
        except RedisGone:
            asked_before = True
        if asked_before:
            async with autocommit(self._pool) as t:
                await leader.demote(t, view.epoch)

    async def _ticks(self, view: LeaderView) -> bool | None:
        try:
            status = await self._peers.status(view.address)
        except TobanError:
            return None
        return status.ticking and status.epoch == view.epoch
