"""The guard's clocks. Its only source of time, because it may not import the runtime."""

import time

from toban_fencing.executor_lease import Instant


def boottime() -> float:
    """Seconds since boot, suspend included (CLOCK_BOOTTIME): what every deadline and timer of the guard uses."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def instant() -> Instant:
    """Now, on both clocks of a lease."""
    return Instant(time.clock_gettime(time.CLOCK_BOOTTIME), time.time())


def wall() -> float:
    """Unix time in seconds: the second clock of a lease, it alone notices a paused virtual machine."""
    return time.time()


def wall_ns() -> int:
    """Unix time in nanoseconds, for time stamps of output."""
    return time.time_ns()


def pause(seconds: float) -> None:
    """Block for `seconds`; only for the start and the end of guards, never in the loop of a slot supervisor."""
    time.sleep(seconds)
