"""Worker hashes on their way to Redis: collected, and written once a while in one pipeline."""

from __future__ import annotations

from collections.abc import Mapping

from toban_coordinator.ports.settings import SettingsSource
from toban_fencing.redis_client import RedisGone
from toban_fencing.worker_registry import Members
from toban_runtime.clock import Clock


class RedisMirror:
    """`MemberMirror`; `run_once` is the body of a loop. Redis being gone costs the newest hashes and nothing else."""

    def __init__(self, *, members: Members, clock: Clock, settings: SettingsSource) -> None:
        self._settings = settings
        self._members = members
        self._clock = clock
        self._waiting: dict[int, Mapping[str, str]] = {}
        self._newest_id = 0

    def put(self, worker_id: int, fields: Mapping[str, str]) -> None:
        """Remember the newest fields of a worker for the next turn."""
        self._waiting[worker_id] = fields
        self._newest_id = max(self._newest_id, worker_id)

    async def run_once(self) -> None:
        """Write what has been put since the last turn."""
        waiting, self._waiting = self._waiting, {}
        try:
            ttl = self._settings.known["heartbeat_ttl_seconds"]
            now = self._clock.wall().timestamp()
            await self._members.write(waiting, ttl_seconds=ttl, now=now, newest_id=self._newest_id)
        except RedisGone:
            # The link itself tells the log; the next heartbeats bring newer hashes anyway.
            pass
