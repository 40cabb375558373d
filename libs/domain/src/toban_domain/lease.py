"""States of executor leases (docs/fencing.md 3.5). `toban_fencing.executor_lease` computes with leases."""

from __future__ import annotations

from enum import StrEnum

# Maximum number of unacknowledged grants (docs/fencing.md 3.5).
MAX_ECHO_LAG = 3


class ExecutorState(StrEnum):
    """State of an executor row; there is one row per incarnation."""

    ON = "on"
    DRAINING = "draining"
    DETACHED = "detached"
    CUT = "cut"
    OFF = "off"
