"""A coordinator's own row and hash, once a second: that it is there, and what it is. Also who is sub-leader of its node: the coordinators' rows
decide, so that there is one without Redis too."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from toban_coordinator.decide.cluster.leader_health import MAX_SKEW_SECONDS, Standby, is_subleader, should_yield
from toban_coordinator.leadership.leadership import Leadership
from toban_coordinator.ports.leader import ServerClock
from toban_coordinator.ports.worker_registry import MemberMirror
from toban_coordinator.store.cluster import coordinators
from toban_fencing.redis_locks import SubleaderLock
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_store.pool import Pool

PRESENT_SECONDS = 15.0
# One that is to lead instead, or to be sub-leader, has written its row within this time; it does so each second.
FRESH_SECONDS = 3.0
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresenceDeps:
    """Where presence is written, and by whose clock; `server_time` knows how far that one is off PostgreSQL's.

    `certificate_end` says when this process's certificate ends; `release` is the version that it runs. `on_settings` hears of the version of the
    settings in PostgreSQL.
    """

    pool: Pool
    clock: Clock
    mirror: MemberMirror
    subleader: SubleaderLock
    server_time: ServerClock
    release: str
    certificate_end: Callable[[], datetime | None] = lambda: None
    on_settings: Callable[[int], None] = lambda _version: None


class Presence:
    """`run_once` is the body of a loop with a tick of a second; `addresses` are the coordinators seen lately, the leader first."""

    def __init__(self, *, deps: PresenceDeps, leadership: Leadership) -> None:
        self._deps = deps
        self._leadership = leadership
        self._present: list[coordinators.Coordinator] = []
        self._looked = False
        # Whether the sub-leader's lock may be held by this process.
        self._may_hold = True
        self._alone_and_off = False

    def addresses(self) -> tuple[str, ...]:
        """Addresses of coordinators seen within PRESENT_SECONDS, this one included, the leader's first."""
        leader = self._leadership.view().address
        found = {item.address for item in self._present} | {self._leadership.me.address}
        return tuple(sorted(found, key=lambda address: (address != leader, address)))

    def subleader_of(self, node_id: str) -> str:
        """The address of the sub-leader of a node, "" when none was seen lately."""
        fresh = (item for item in self._present if item.age_seconds <= FRESH_SECONDS)
        return next((item.address for item in fresh if item.role == "subleader" and item.node_id == node_id), "")

    async def introduce(self) -> None:
        """Write this process's row. Raises TobanError when PostgreSQL does not take it."""
        await coordinators.register(self._deps.pool, self._process())

    async def run_once(self) -> None:
        """Become or cease to be sub-leader, tell the role to PostgreSQL and Redis, read who else is there."""
        await self._settle_role()
        me, role = self._leadership.me, self._leadership.view().role
        host, _, port = me.address.rpartition(":")
        fields = {
            "node_id": me.node_id,
            "pid": str(os.getpid()),
            "grpc_host": host,
            "grpc_port": port,
            "role": role,
            "last_heartbeat_ts": f"{self._deps.clock.wall().timestamp():.3f}",
            "load": f"{os.getloadavg()[0]:.2f}",
        }
        self._deps.mirror.put(me.worker_id, fields)
        skew = self._deps.server_time.skew_seconds
        self._present = await coordinators.touch(
            self._deps.pool,
            self._process(),
            role=role,
            clock_skew_seconds=skew,
            certificate_not_after=self._deps.certificate_end(),
            seconds=PRESENT_SECONDS,
        )
        self._looked = True
        if self._present:
            self._deps.on_settings(self._present[0].settings_version)
        self._judge_clock(skew)

    def _process(self) -> coordinators.Process:
        me = self._leadership.me
        return coordinators.Process(
            incarnation=me.incarnation,
            worker_id=me.worker_id,
            node_id=me.node_id,
            address=me.address,
            pid=os.getpid(),
            version=self._deps.release,
        )

    async def _settle_role(self) -> None:
        elected = self._is_subleader()
        if not self._leadership.view().leading:
            self._leadership.set_standby_role("subleader" if elected else "standby")
        # The lock shows the sub-leader to others and decides nothing: whether Redis takes it does not matter.
        if elected:
            self._may_hold = True
            await self._deps.subleader.hold()
        elif self._may_hold:
            self._may_hold = False
            await self._deps.subleader.release()

    def _is_subleader(self) -> bool:
        view, me = self._leadership.view(), self._leadership.me
        if view.leading or not self._looked:
            # Who else is there shows with the first answer.
            return False
        others = [
            Standby(item.incarnation, item.worker_id, item.node_id)
            for item in self._present
            if item.age_seconds <= FRESH_SECONDS and item.incarnation not in (me.incarnation, view.holder)
        ]
        return is_subleader(Standby(me.incarnation, me.worker_id, me.node_id), others, leader_node=view.node_id)

    def _judge_clock(self, skew: float) -> None:
        """Let one with a better clock lead, if there is one; else lead on, fire nothing, and say so once."""
        me = self._leadership.me.incarnation
        others = [
            item.clock_skew_seconds
            for item in self._present
            if item.incarnation != me and item.age_seconds <= FRESH_SECONDS
        ]
        way = should_yield(skew, others)
        alone = self._leadership.view().leading and abs(skew) > MAX_SKEW_SECONDS and not way
        if alone and not self._alone_and_off:
            _log.error(
                "clock is off and no other coordinator can lead: this one keeps leading and fires nothing",
                skew_seconds=round(skew, 3),
                remedy="synchronise this machine's clock and PostgreSQL's; docs/runbooks/TobanClockOff.md",
            )
        self._alone_and_off = alone
        self._leadership.yield_leadership(way)

    async def leave(self) -> None:
        """Record the end in order. Raises TobanError when PostgreSQL does not take it."""
        await self._deps.subleader.release()
        await coordinators.stopped(self._deps.pool, incarnation=self._leadership.me.incarnation)
