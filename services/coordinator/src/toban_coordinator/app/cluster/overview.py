"""What needs attention, for the first page of the site: read by bounded statements, and kept for some seconds for all who ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toban_coordinator.app.cluster.activity import Activity
from toban_coordinator.decide.cluster import overview as decide
from toban_coordinator.decide.cluster.activity import Interval
from toban_coordinator.decide.cluster.overview import ActiveAlert, AlertFacts, Queue, Waiting
from toban_coordinator.store.cluster import cluster_stats, epoch_claims
from toban_coordinator.store.cluster import overview as store
from toban_coordinator.store.cluster.overview import Failures
from toban_coordinator.store.notifications import webhooks
from toban_runtime.clock import Clock
from toban_runtime.shared_answer import SharedAnswer
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, autocommit

# Many open pages ask for the same every few seconds.
KEPT_SECONDS = 2.0
# Waiting runs are counted up to this many.
MOST_WAITING = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Rows are those of store/cluster/overview.sql; `queues` by what the runs wait for."""

    server_time: datetime
    alerts: Sequence[ActiveAlert]
    failures: Failures
    queues: Mapping[str, Queue]
    missed: Sequence[Row]
    coming: Sequence[Row]
    coming_schedules: int
    activity: Sequence[Interval]


class Overviews:
    """One reading serves all calls of the next KEPT_SECONDS. `health` gives the document of /healthz."""

    def __init__(self, *, pool: Pool, clock: Clock, health: Callable[[], dict[str, Any]]) -> None:
        self._pool = pool
        self._health = health
        self._activity = Activity(clock)
        self._reading = SharedAnswer(self._fresh, clock, keep=lambda _took: KEPT_SECONDS)

    async def get(self) -> Overview:
        """At most KEPT_SECONDS old. Raises StoreError."""
        return await self._reading.get()

    async def _fresh(self) -> Overview:
        async with autocommit(self._pool) as t:
            return await self._read(t)

    async def _read(self, t: Tx) -> Overview:
        found = await cluster_stats.waiting(t, limit=MOST_WAITING)
        waiting = [
            Waiting(state=row.state, retry=row.retry, runs=row.runs, oldest=row.oldest)
            for row in found
            if not row.claimed
        ]
        queues = decide.queues(waiting)
        facts = await store.alert_facts(t)
        failures = await store.failures(t)
        missed = await store.missed(t)
        coming, schedules = await store.coming(t)
        return Overview(
            server_time=facts["server_time"],
            alerts=decide.active_alerts(await self._facts(t, facts, queues)),
            failures=failures,
            queues=queues,
            missed=missed,
            coming=coming,
            coming_schedules=schedules,
            activity=await self._activity.read(t, facts["server_time"]),
        )

    async def _facts(self, t: Tx, row: Row, queues: Mapping[str, Queue]) -> AlertFacts:
        hooks = await webhooks.health(t)
        given = {name: value for name, value in row.items() if name != "server_time"}
        return AlertFacts(
            **given,
            overdue=await cluster_stats.overdue_seconds(t),
            webhooks_down=hooks.down,
            webhook_overdue=hooks.overdue,
            refused_epochs=len(await epoch_claims.refused(t)),
            standbys=await cluster_stats.standbys(t),
            queues=queues,
            health=decide.check_states(self._health()),
        )
