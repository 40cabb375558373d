"""What the loops and the report path count."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import cache

from toban_coordinator.decide.schedules.fire import MISSED_AFTER_SECONDS
from toban_coordinator.store.runs.runs_finish import Finished
from toban_domain.fire_plan import FirePlan
from toban_domain.job import JobSpec
from toban_domain.run import TERMINAL
from toban_observability import metrics

LAG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
DURATION = (0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
ORIGINS = ("slot", "demand", "event")

finished_runs = metrics.counter(
    "toban_runs_finished_total", "Runs that reached a terminal state, by state.", ("state",)
)
submitted = metrics.counter("toban_runs_submitted_total", "Created runs by origin: slot, demand, event.", ("origin",))
secret_orders = metrics.counter(
    "toban_secret_orders_total",
    "Start orders of jobs that name secrets, by result: sent with them, or refused because one cannot be had.",
    ("result",),
)
deferred = metrics.counter("toban_runs_deferred_total", "Times that a limit made a run DEFERRED.")
breaker_moves = metrics.counter(
    "toban_breaker_moves_total", "Times that failures or a probe moved a breaker, by its new state.", ("state",)
)
resumed = metrics.counter(
    "toban_runs_resumed_total", "Times that a deferred run became PENDING because its limit had room."
)
skipped_runs = metrics.counter("toban_runs_skipped_total", "Runs that became SKIPPED, by reason.", ("reason",))
duration = metrics.histogram(
    "toban_run_duration_seconds",
    "Duration of a run's last attempt, by kind (type of its steps, mixed, unknown) and outcome.",
    ("kind", "outcome"),
    DURATION,
)
start_lag = metrics.histogram(
    "toban_run_start_lag_seconds",
    "Time from a run's scheduled time (its slot, or when it was requested) to the start of its first attempt.",
    ("origin",),
    LAG,
)
wait = metrics.histogram(
    "toban_run_wait_seconds",
    "Time from creating a run (or its scheduled time, when later) to the start of its first attempt.",
    (),
    LAG,
)
slot_lag = metrics.histogram(
    "toban_schedule_row_lag_seconds",
    "Time from a slot to the creation of its run; 0 when the run was created in advance.",
    (),
    LAG,
)
skipped_slots = metrics.counter(
    "toban_schedule_slots_skipped_total", "Slots recorded in the fire ledger without a run, by reason.", ("reason",)
)
missed_slots = metrics.counter(
    "toban_schedule_slots_missed_total",
    "Slots processed more than 15 s late, by outcome: run (caught up) or skipped (by the catch_up policy).",
    ("outcome",),
)
fire_failures = metrics.counter(
    "toban_schedule_fire_failures_total",
    "Failures to create the runs of a due schedule, by outcome: retry (attempted again), failed (the schedule is stopped) or removed "
    "(by its on_failure).",
    ("outcome",),
)
set_aside = metrics.counter(
    "toban_run_set_aside_total",
    "Runs that could not be moved and were set aside so that others go on: refused (by PostgreSQL) or slow (one run took too long).",
    ("kind",),
)
refusals = metrics.counter(
    "toban_dispatch_refused_total", "Start orders that executors refused, by refusal.", ("refusal",)
)
unstored_results = metrics.counter(
    "toban_run_results_missing_total",
    "Ended attempts without a stored result: lost_result (the executor holds none; the run is repeated), result_refused (the run failed).",
    ("kind",),
)
undelivered = metrics.counter("toban_dispatch_undelivered_total", "Order RPCs that failed, by kind.", ("kind",))

# A series that begins with its first event has no increase: those that alerts look at begin with 0.
for _outcome in ("run", "skipped"):
    missed_slots.labels(_outcome)
for _outcome in ("retry", "failed", "removed"):
    fire_failures.labels(_outcome)
for _kind in ("refused", "slow"):
    set_aside.labels(_kind)
for _state in TERMINAL:
    finished_runs.labels(_state.value)
for _kind in ("lost_result", "result_refused"):
    unstored_results.labels(_kind)
for _origin in ORIGINS:
    submitted.labels(_origin)

# Looking a series up costs as much as counting in it, and this is done for every run.
_ended = cache(finished_runs.labels)
_lag = cache(start_lag.labels)
_lasted = cache(duration.labels)

Known = Callable[[tuple[int, int]], JobSpec | None]


def count_finished(runs: Iterable[Finished], known: Known = lambda _key: None) -> None:
    """Counts runs whose end has been committed; `known` gives a definition that is in memory."""
    for run in runs:
        _ended(run.state).inc()
        if run.state == "SKIPPED":
            skipped_runs.labels(run.reason).inc()
        if run.start_lag is not None:
            _lag(run.origin).observe(max(0.0, run.start_lag))
        if run.wait is not None:
            wait.observe(max(0.0, run.wait))
        if run.seconds is not None:
            _lasted(kind(known(run.definition)), run.state).observe(max(0.0, run.seconds))


def kind(spec: JobSpec | None) -> str:
    """The type of a job's steps."""
    if spec is None:
        return "unknown"
    first = spec.steps[0].type
    return first if len(spec.steps) == 1 or all(step.type == first for step in spec.steps) else "mixed"


def count_settled(plan: FirePlan, now: datetime) -> None:
    """Counts the slots of a plan that has been committed."""
    oldest = now - timedelta(seconds=MISSED_AFTER_SECONDS)
    for slot in plan.fires:
        slot_lag.observe(max(0.0, (now - slot).total_seconds()))
        if slot < oldest:
            missed_slots.labels("run").inc()
    if plan.fires:
        submitted.labels("slot").inc(len(plan.fires))
    for skip in plan.skips:
        skipped_slots.labels(skip.outcome).inc(skip.slots)
        if skip.outcome == "catch_up":
            missed_slots.labels("skipped").inc(skip.slots)
