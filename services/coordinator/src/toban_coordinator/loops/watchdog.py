"""Loop `watchdog`, of a sub-leader: looks from outside of the leader whether slots are due and nothing fires.

It reads PostgreSQL alone and asks the leader nothing: a leader whose health is green while it fires nothing is what it is for.
"""

from __future__ import annotations

from toban_coordinator.decide.schedules.watchdog import Watch, look
from toban_coordinator.ports.leader import LeaderSource
from toban_coordinator.ports.settings import SettingsSource
from toban_coordinator.store.cluster import cluster_stats
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_store.pool import Pool
from toban_store.tx import autocommit

TICK_SECONDS = 5.0

_log = get_logger(__name__)
_looks = metrics.counter("toban_watchdog_looks_total", "Checks by this process as the watchdog (a sub-leader).")
_overdue = metrics.gauge(
    "toban_watchdog_overdue_seconds", "Age of the oldest due slot that is not processed; 0 when there is none."
)
_alert = metrics.gauge(
    "toban_watchdog_alarm",
    "1 while slots are overdue and no schedule fires, as observed by the watchdog of a sub-leader.",
)


class Watchdog:
    """`run_once` is the body of a loop that runs in every coordinator and does something in a sub-leader."""

    def __init__(self, *, pool: Pool, leader: LeaderSource, settings: SettingsSource) -> None:
        self._pool = pool
        self._leader = leader
        self._settings = settings
        self._last = Watch()

    async def run_once(self) -> None:
        """One check."""
        view = self._leader.view()
        if view.role != "subleader":
            self._publish(Watch(), epoch=view.epoch)
            return
        async with autocommit(self._pool) as t:
            overdue = await cluster_stats.overdue_seconds(t)
        _looks.inc()
        self._publish(look(overdue, tick_seconds=self._settings.known["leader_tick_seconds"]), epoch=view.epoch)

    def _publish(self, now: Watch, *, epoch: int) -> None:
        before, self._last = self._last, now
        _overdue.set(now.overdue)
        _alert.set(now.alert)
        if now.alert and not before.alert:
            _log.error("slots are due and nothing fires", overdue_seconds=round(now.overdue, 1), epoch=epoch)
        elif before.alert and not now.alert:
            _log.info("slots are fired again, or this process stopped being the watchdog", epoch=epoch)
