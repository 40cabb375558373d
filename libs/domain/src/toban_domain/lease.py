"""States of executor leases (docs/fencing.md 3.5). The arithmetic of the lease is in `toban_fencing.executor_lease`."""

from __future__ import annotations

from enum import StrEnum

# Grants that may be unacknowledged before no more are given (docs/fencing.md 3.5).
MAX_ECHO_LAG = 3


class ExecutorState(StrEnum):
    """States of an executor row: one row an incarnation."""

    ON = "on"
    DRAINING = "draining"
    DETACHED = "detached"
    CUT = "cut"
    OFF = "off"
