"""What is counted of events: by whoever accepts them, and by the leader, who processes them."""

from __future__ import annotations

from toban_observability import metrics

LAG = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3600.0)

received = metrics.counter(
    "toban_events_received_total",
    "Events that came in: by call, counted by the coordinator that answered, or by SQL, counted by the leader.",
    ("source",),
)
processed = metrics.counter(
    "toban_events_processed_total",
    "Events by what became of them: started, no_trigger, duplicate, failed; retry = a try that comes again.",
    ("outcome",),
)
started = metrics.counter("toban_event_runs_total", "Runs that events started.")
failures = metrics.counter(
    "toban_trigger_failures_total", "Times that a trigger fitted an event and could not start its job."
)
defects = metrics.counter(
    "toban_event_defects_total", "Events that failed since judging them raised what nobody expected: a defect of Toban."
)
lag = metrics.histogram("toban_event_lag_seconds", "From an event's acceptance to its end in the inbox.", (), LAG)
inbox = metrics.leader_gauge("toban_events_inbox", "Events that wait to be processed, counted up to 100,000.")
oldest = metrics.leader_gauge(
    "toban_events_inbox_oldest_seconds", "Age of the oldest event that waits to be processed."
)
