"""What the loops and the report path count."""

from __future__ import annotations

from collections.abc import Iterable

from toban_observability import metrics
from toban_store.scheduler.runs_finish import Finished

LAG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

finished_runs = metrics.counter("toban_runs_finished_total", "Runs that became terminal, by state.", ("state",))
start_lag = metrics.histogram(
    "toban_run_start_lag_seconds", "Time of a run (its slot, or when it was asked for) to its start.", ("origin",), LAG
)
slot_lag = metrics.histogram(
    "toban_schedule_row_lag_seconds", "Slot to the row of its run; 0 when the row was there in time.", (), LAG
)
fire_failures = metrics.counter(
    "toban_schedule_fire_failures_total",
    "Slots that could not be turned into runs: by retry (it is tried again) or failed (the schedule stopped).",
    ("outcome",),
)
queue_depth = metrics.gauge("toban_runs_pending", "Runs that are due and wait for a place.")
oldest_pending = metrics.gauge("toban_runs_pending_oldest_seconds", "Age of the oldest run that is due and waits.")
refusals = metrics.counter("toban_dispatch_refused_total", "Starts that executors refused, by refusal.", ("refusal",))
undelivered = metrics.counter("toban_dispatch_undelivered_total", "Order calls that failed, by kind.", ("kind",))


def count_finished(runs: Iterable[Finished]) -> None:
    """Counts runs whose end has been committed."""
    for run in runs:
        finished_runs.labels(run.state).inc()
        if run.start_lag is not None:
            start_lag.labels(run.origin).observe(max(0.0, run.start_lag))
