"""Executor leases: states, arithmetic and the stand-still that allows a fence (docs/fencing.md 3.5, 3.8).

The hold side ends at send time + L - m; the take side waits L(1 + rho) + m' from the return of the read that first showed the counter. Both count on
their own clocks only, so no two machines' clocks are ever compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# m: what the hold side keeps back for the kill, seconds.
HOLD_MARGIN = 0.3
# m': what the take side adds against scheduler stalls, seconds.
TAKE_MARGIN = 0.5
# rho: bound on the rate error between two machines' clocks (NTP slew is capped at 500 ppm).
CLOCK_RATE_ERROR = 1e-3
# Grants that may be unacknowledged before no more are given (docs/fencing.md 3.5).
MAX_ECHO_LAG = 3


class ExecutorState(StrEnum):
    """States of an executor row: one row an incarnation."""

    ON = "on"
    DRAINING = "draining"
    DETACHED = "detached"
    CUT = "cut"
    OFF = "off"


def take_seconds(lease_ms: int) -> float:
    """How long a grant counter must have stood still before a fence: L(1 + rho) + m', seconds."""
    return lease_ms / 1000 * (1 + CLOCK_RATE_ERROR) + TAKE_MARGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What one coordinator saw of one incarnation: the counter and when (its own BOOTTIME, seconds) it first saw this value."""

    cluster: str
    grant_seq: int
    since: float


def observe(last: Sighting | None, *, cluster: str, grant_seq: int, read_returned_at: float) -> Sighting:
    """The sighting after a read; any change of counter or cluster starts the wait again."""
    if last is not None and last.cluster == cluster and last.grant_seq == grant_seq:
        return last
    return Sighting(cluster=cluster, grant_seq=grant_seq, since=read_returned_at)


def may_fence(sighting: Sighting, *, lease_ms: int, now: float) -> bool:
    """True when the counter stood still for a whole lease on the observer's own clock (BOOTTIME, seconds)."""
    return now - sighting.since >= take_seconds(lease_ms)
