"""The hold side of the executor's lease (docs/fencing.md 3.5), without a clock of its own.

A deadline is kept on CLOCK_BOOTTIME and on the wall clock; whichever has run further decides, because only the wall clock
notices a virtual machine that was paused.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on both clocks, seconds: CLOCK_BOOTTIME and Unix time."""

    boot: float
    wall: float

    def plus(self, seconds: float) -> "Instant":
        """This moment moved by `seconds`."""
        return Instant(self.boot + seconds, self.wall + seconds)

    def seconds_until(self, other: "Instant") -> float:
        """How long until `other`, by the clock that has run further; negative when it has passed."""
        return min(other.boot - self.boot, other.wall - self.wall)


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

    def grace(self, wanted: float) -> float:
        """Seconds between SIGTERM and SIGKILL when the lease ends: what the job asks for, at most half of the lease."""
        return max(0.0, min(wanted, self._hold / 2))
