"""Checks of what is to be done: events and schedules."""

from __future__ import annotations

from dataclasses import dataclass

from toban_domain.finding import Finding

# Seconds that an event may wait; the leader looks twice a second.
EVENT_LATE = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFacts:
    """Events that wait and how old the oldest is; schedules that failed, the first few with their reasons."""

    events: int
    oldest_event_age: float
    failed_schedules: int
    failed_names: str


def work(facts: WorkFacts) -> list[Finding]:
    """Nothing lies around."""
    events = Finding(name="events", subject="inbox", value=f"{facts.events} waiting")
    if facts.oldest_event_age > EVENT_LATE:
        events = Finding(
            name="events",
            subject="inbox",
            value=f"{facts.events} waiting, the oldest for {facts.oldest_event_age:.0f} s",
            status="warning",
            message="events are emitted faster than they are processed, or some cannot be processed",
            remedy="`toban event list --unprocessed` shows them; see that there is a leader",
        )
    schedules = Finding(name="schedules", subject="schedules", value="none failed")
    if facts.failed_schedules:
        schedules = Finding(
            name="schedules",
            subject="schedules",
            value=f"{facts.failed_schedules} failed",
            status="error",
            message=f"schedules do not fire any more: {facts.failed_names}",
            remedy="correct the rule and apply it again; `toban schedule list` shows them",
        )
    return [events, schedules]
