"""Metrics of events: counted by the coordinator that accepts them, and by the leader, which processes them."""

from __future__ import annotations

from toban_observability import metrics

LAG = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3600.0)

received = metrics.counter(
    "toban_events_received_total",
    "Accepted events by source: call (counted by the coordinator that served it) hook (an incoming webhook), or sql (counted by the leader).",
    ("source",),
)
processed = metrics.counter(
    "toban_events_processed_total",
    "Processed events by outcome: started, no_trigger, duplicate, failed, or retry (processed again later).",
    ("outcome",),
)
started = metrics.counter("toban_event_runs_total", "Runs started by events.")
failures = metrics.counter(
    "toban_trigger_failures_total", "Triggers that matched an event and could not start their job."
)
defects = metrics.counter(
    "toban_event_defects_total",
    "Events that failed because evaluating them raised an unexpected exception: a defect of Toban.",
)
chains_cut = metrics.counter(
    "toban_chains_cut_total",
    "Ends of runs that started nothing because their chain of runs has max_chain_depth runs: mostly triggers that start each other.",
)
lag = metrics.histogram(
    "toban_event_lag_seconds", "Time from accepting an event to removing it from the inbox.", (), LAG
)
inbox = metrics.leader_gauge("toban_events_inbox", "Unprocessed events in the inbox, counted up to 100,000.")
oldest = metrics.leader_gauge("toban_events_inbox_oldest_seconds", "Age of the oldest unprocessed event in the inbox.")
