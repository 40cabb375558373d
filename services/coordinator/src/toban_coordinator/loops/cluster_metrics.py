"""Loop `cluster_metrics`: counts what the whole cluster has, for metrics that the leader alone publishes; nothing is decided by it."""

from __future__ import annotations

from collections import Counter

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.limits.operations_limits import LIMIT_STATES, LimitOperations
from toban_coordinator.decide.placement import assign
from toban_coordinator.decide.runs import pending_reasons as decide
from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.store.cluster import cluster_stats
from toban_coordinator.store.external import external_claims
from toban_coordinator.store.limits import limit_admin
from toban_coordinator.store.notifications import webhooks
from toban_coordinator.store.placement import runs_assign
from toban_coordinator.store.schedules import schedules
from toban_domain.placement import ExecutorLoad
from toban_domain.run import TERMINAL, RunState
from toban_observability import metrics
from toban_store.tx import Tx, autocommit

# Counting a hundred thousand rows takes some milliseconds, so not often.
TICK_SECONDS = 15.0
# Waiting runs are counted up to this many.
MOST_RUNS = 200_000
# Worker types that metrics name.
MOST_TYPES = 20
LIMIT_KINDS = ("job", "key", "pool", "rate", "group")
MODES = ("sync", "async", "unknown")

by_status = metrics.leader_gauge(
    "toban_schedules", "Schedules by status: active, paused, failed, disabled.", ("status",)
)
overdue = metrics.leader_gauge(
    "toban_schedules_overdue_seconds", "Age of the oldest due slot that has neither a run nor a fire ledger row."
)
pending = metrics.leader_gauge("toban_runs_pending", "Due runs that wait to be started, by reason.", ("reason",))
pending_oldest = metrics.leader_gauge(
    "toban_runs_pending_oldest_seconds", "Age of the oldest due run that waits to be started, by reason.", ("reason",)
)
live = metrics.leader_gauge("toban_runs_live", "Due runs that are not terminal, by state.", ("state",))
oldest = metrics.leader_gauge(
    "toban_runs_oldest_seconds",
    "Longest time that a run assigned to an executor has been in its state, by state.",
    ("state",),
)
overtime = metrics.leader_gauge(
    "toban_runs_overtime_seconds", "Largest time by which a running run exceeds its timeout."
)
standbys = metrics.leader_gauge(
    "toban_postgresql_standbys",
    "Standbys of PostgreSQL by mode: sync, async, unknown (the database role may not read it).",
    ("mode",),
)
clock_skew = metrics.leader_gauge(
    "toban_executors_clock_skew_seconds",
    "Largest absolute difference between an executor's wall clock and that of PostgreSQL.",
)
disk_free = metrics.leader_gauge(
    "toban_executors_disk_free_bytes", "Smallest free space of all executors on the file system of the state directory."
)
limits_by_state = metrics.leader_gauge(
    "toban_limits", "Limits of jobs, pools and start rates by state: free, full, stopped (-1).", ("state",)
)
limits_waiting = metrics.leader_gauge(
    "toban_limits_waiting", "Runs that are deferred, by the kind of the limit: job, key, pool, rate, group.", ("kind",)
)
limits_size = metrics.leader_gauge(
    "toban_limits_size", "Sum of what limits admit now, by their kind: job, key, pool, rate, group.", ("kind",)
)
limits_held = metrics.leader_gauge(
    "toban_limits_held", "Sum of what is taken of limits, by their kind: job, key, pool, rate, group.", ("kind",)
)
limits_reduced = metrics.leader_gauge(
    "toban_limits_reduced", "Limits that a health signal reduces, or that have not recovered from one."
)
limits_blocked = metrics.leader_gauge(
    "toban_limits_blocked_seconds", "Longest time for which runs have waited for a full limit that let none start."
)
breakers = metrics.leader_gauge("toban_breakers", "Breakers by state: open, half_open.", ("state",))
external_steps = metrics.leader_gauge(
    "toban_external_steps",
    "Steps of external workers by worker_type (the 20 with most steps, and other) and state: offered, claimed.",
    ("worker_type", "state"),
)
external_oldest = metrics.leader_gauge(
    "toban_external_oldest_seconds",
    "Longest time for which a step has been offered to external workers and not claimed, by worker_type as in toban_external_steps.",
    ("worker_type",),
)
webhook_targets = metrics.leader_gauge(
    "toban_webhooks", "Targets of webhooks by state: active, failing, down (the breaker is open), disabled.", ("state",)
)
webhook_overdue = metrics.leader_gauge(
    "toban_webhook_overdue_seconds",
    "Longest time for which a delivery has been due and not been tried, of webhooks that are not down.",
)
limits_idle = metrics.leader_gauge(
    "toban_limits_idle",
    "Limits that have room although runs are deferred on them; the leader resumes those within a second.",
)


class ClusterMetrics:
    """Reads counts and publishes them as metrics."""

    def __init__(self, *, deps: LoopDeps, definitions: DefinitionCache) -> None:
        self._deps = deps
        self._definitions = definitions

    async def run_once(self) -> TurnOutcome:
        """One count."""
        async with autocommit(self._deps.pool) as t:
            by_status.set_all({(status,): count for status, count in (await schedules.counts(t)).items()})
            overdue.set(await cluster_stats.overdue_seconds(t))
            await self._runs(t)
            await _external(t)
            await _webhooks(t)
            await _cluster(t)
        await self._limits()
        return TurnOutcome()

    async def _runs(self, t: Tx) -> None:
        found = await cluster_stats.waiting(t, limit=MOST_RUNS)
        held = await cluster_stats.held(t)
        groups = [
            decide.Group(
                state=RunState(row.state),
                definition=(row.definition_id, row.version),
                retry=row.retry,
                runs=row.runs,
                oldest=row.oldest,
            )
            for row in found
            if not row.claimed
        ]
        specs = await self._definitions.find(t, {group.definition for group in groups})
        queues = decide.waiting(groups, await self._executors(t) if groups else [], specs)
        pending.set_all({(reason,): queue.runs for reason, queue in queues.items()})
        pending_oldest.set_all({(reason,): queue.oldest for reason, queue in queues.items()})
        states = {state.value: 0 for state in RunState if state not in TERMINAL}
        for state, runs in [*((row.state, row.runs) for row in found), *((row.state, row.runs) for row in held)]:
            states[state] += runs
        live.set_all({(state,): count for state, count in states.items()})
        ages = {row.state: row.oldest for row in held}
        oldest.set_all(
            {(state,): ages.get(state, 0.0) for state in ("ASSIGNED", "RUNNING", "CANCEL_REQUESTED", "ORPHANED")}
        )
        overtime.set(max((row.overtime for row in held), default=0.0))

    async def _limits(self) -> None:
        found = await LimitOperations(pool=self._deps.pool).list()
        by_state = Counter(one.state for one in found if one.name.startswith(("job:", "pool:", "rate:")))
        limits_by_state.set_all({(state,): by_state[state] for state in LIMIT_STATES})
        for gauge, amounts in (
            (limits_waiting, [(one.kind, one.queue.waiting) for one in found]),
            (limits_size, [(one.kind, max(0, one.effective)) for one in found]),
            (limits_held, [(one.kind, one.held) for one in found]),
        ):
            sums = Counter[str]()
            for kind, amount in amounts:
                sums[kind] += amount
            gauge.set_all({(kind,): sums[kind] for kind in LIMIT_KINDS})
        by_breaker = Counter(one.breaker.state for one in found if one.breaker is not None)
        breakers.set_all({(state,): by_breaker[state] for state in ("open", "half_open")})
        limits_reduced.set(sum(one.signal is not None for one in found))
        limits_idle.set(sum(one.is_idle for one in found))
        full = [one.name for one in found if one.queue.waiting and one.state == "full" and not one.starts]
        async with autocommit(self._deps.pool) as t:
            limits_blocked.set(await limit_admin.blocked_seconds(t, full) if full else 0.0)

    async def _executors(self, t: Tx) -> list[ExecutorLoad]:
        fresh = assign.fresh_seconds(self._deps.settings.known)
        return assign.usable(await runs_assign.executor_loads(t), self._deps.server_time.now(), fresh=fresh)


async def _external(t: Tx) -> None:
    """The worker types with most steps by name, the others together."""
    counts, ages = dict[tuple[str, ...], float](), dict[str, float]()
    for place, row in enumerate(await external_claims.counts(t)):
        name = row["worker_type"] if place < MOST_TYPES else "other"
        for state in ("offered", "claimed"):
            counts[name, state] = counts.get((name, state), 0) + row[state]
        ages[name] = max(ages.get(name, 0.0), row["oldest"])
    external_steps.set_all(counts)
    external_oldest.set_all({(name,): age for name, age in ages.items()})


async def _webhooks(t: Tx) -> None:
    found = await webhooks.health(t)
    counts = {"active": found.active, "failing": found.failing, "down": found.down, "disabled": found.disabled}
    webhook_targets.set_all({(state,): count for state, count in counts.items()})
    webhook_overdue.set(found.overdue)


async def _cluster(t: Tx) -> None:
    modes = await cluster_stats.standbys(t)
    standbys.set_all({(mode,): modes.get(mode, 0) for mode in MODES})
    worst = await cluster_stats.executor_extremes(t)
    if worst.clock_skew is not None:
        clock_skew.set(worst.clock_skew)
    if worst.disk_free is not None:
        disk_free.set(worst.disk_free)
