"""States of executor leases (docs/fencing.md 3.5). `toban_fencing.executor_lease` computes with leases."""

from __future__ import annotations

from enum import StrEnum

# What an executor keeps back of its lease, seconds (m in docs/fencing.md 3.5).
LEASE_MARGIN_SECONDS = 0.3

# A coordinator's time to answer whether an attempt may continue: at most so many seconds, and at most this part of the lease.
_MAX_CALL_SECONDS = 0.5
_CALLS_PER_LEASE = 20

# Maximum number of unacknowledged grants (docs/fencing.md 3.5).
MAX_ECHO_LAG = 3


def continuation_call_seconds(hold: float) -> float:
    """How long one coordinator may take to answer; `hold` is L − m in seconds."""
    return min(_MAX_CALL_SECONDS, hold / _CALLS_PER_LEASE)


def continuation_window(*, tries: int, interval: float, hold: float) -> float:
    """How long all tries of an executor take at most, seconds. Up to half of the lease is for them and for a job's grace (docs/fencing.md 3.7)."""
    return tries * (interval + continuation_call_seconds(hold))


class ExecutorState(StrEnum):
    """State of an executor row; there is one row per incarnation."""

    ON = "on"
    DRAINING = "draining"
    DETACHED = "detached"
    CUT = "cut"
    OFF = "off"
