"""When due slots that do not fire raise an alert, judged outside of the leader."""

from __future__ import annotations

from dataclasses import dataclass

# A slot is settled up to assign_ahead_seconds before its time, and a take-over takes 3 s: this late something is wrong.
OVERDUE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Watch:
    """What the watchdog has found so far: whether it barks, and about a slot how old, seconds."""

    alert: bool = False
    overdue: float = 0.0


def look(overdue: float, *, tick_seconds: float) -> Watch:
    """`overdue` is the age of the oldest unsettled slot, 0 for none; a leader whose fire loop turns less often may be later by that."""
    return Watch(alert=overdue > OVERDUE_SECONDS + 2 * tick_seconds, overdue=overdue)
