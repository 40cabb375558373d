"""The executor's lease, both sides (docs/fencing.md 3.5, 3.8), without a clock of its own.

The hold side (the executor) ends at send time + L - m. The take side (a coordinator) waits L(1 + rho) + m' from the return of the read that first
showed the grant counter. Each counts on its own clocks only, so the clocks of two machines are never compared.

The hold side keeps its deadline on CLOCK_BOOTTIME and on the wall clock; whichever has run further decides, because only the wall clock notices a
virtual machine that was paused. A wall clock that was stepped looks the same: then a job is stopped and a grant is asked for, before it is
killed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

# m: what the hold side keeps back for the kill, seconds.
HOLD_MARGIN = 0.3
# m': what the take side adds against scheduler stalls, seconds.
TAKE_MARGIN = 0.5
# rho: bound on the rate error between two machines' clocks (NTP slew is capped at 500 ppm).
CLOCK_RATE_ERROR = 1e-3


class Instant(NamedTuple):
    """One moment on both clocks, seconds: CLOCK_BOOTTIME and Unix time."""

    boot: float
    wall: float

    def plus(self, seconds: float) -> Instant:
        """This moment moved by `seconds`."""
        return Instant(self.boot + seconds, self.wall + seconds)

    def seconds_until(self, other: Instant) -> float:
        """How long until `other`, by the clock that has run further; negative when it has passed."""
        return min(other.boot - self.boot, other.wall - self.wall)

    def passed_by_wall_alone(self, other: Instant) -> bool:
        """True when only the wall clock has passed `other`: it was stepped, or the virtual machine was paused, and nothing here tells which."""
        return self.wall >= other.wall and self.boot < other.boot


class HoldSide:
    """The lease of one incarnation. It begins without a deadline: nothing may start before the first grant."""

    def __init__(self, *, lease_ms: int, margin_ms: int) -> None:
        self._hold = (lease_ms - margin_ms) / 1000
        self._deadline: Instant | None = None

    def granted(self, sent: Instant) -> Instant:
        """A heartbeat sent at `sent` was granted: the deadline, never earlier than one held already."""
        deadline = sent.plus(self._hold)
        # BOOTTIME never goes back, so it alone tells which heartbeat was sent later: after the wall clock was set back, a
        # later grant has the earlier wall time and counts all the same.
        if self._deadline is None or deadline.boot > self._deadline.boot:
            self._deadline = deadline
        return self._deadline

    @property
    def deadline(self) -> Instant | None:
        """Until when jobs may run; None before the first grant."""
        return self._deadline

    def left(self, now: Instant) -> float:
        """Seconds until the deadline; 0 before the first grant, negative when it has passed."""
        return 0.0 if self._deadline is None else now.seconds_until(self._deadline)

    def valid(self, now: Instant) -> bool:
        """True while jobs may start and run."""
        return self.left(now) > 0

    @property
    def seconds(self) -> float:
        """How long a grant lasts: L − m."""
        return self._hold

    def grace(self, wanted: float, *, reserved: float = 0.0) -> float:
        """Seconds between SIGTERM and SIGKILL when the lease ends: what the job asks for, at most half of the lease without the `reserved` part,
        in which the executor asks whether the job may continue."""
        return max(0.0, min(wanted, self._hold / 2 - reserved))


class NonceHold:
    """The nonce that an incarnation presents in its next question for a grant; each grant brings another. 0 = none yet.

    Two copies of an incarnation (a cloned or restored machine) hold different ones after their next grants, and coordinators go on with the one
    that was presented first. `note` is called with each new nonce.
    """

    def __init__(self) -> None:
        self.nonce = 0
        self.note: Callable[[int], None] = lambda _nonce: None
        self._before = 0

    def granted(self, given: int, *, presented: int) -> None:
        """A question that presented `presented` was granted. Of several answers to one nonce the first counts."""
        if given and presented == self.nonce:
            self.nonce, self._before = given, self.nonce
            self.note(given)

    def refused(self, presented: int) -> None:
        """No coordinator knows `presented` any more. It may have come with an answer that more than four others overtook; then the one before
        is still known."""
        if presented == self.nonce:
            self.nonce, self._before = self._before, self.nonce
            self.note(self.nonce)


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
