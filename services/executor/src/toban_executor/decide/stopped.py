"""What becomes of an executor's own processes that something has stopped: they go on, or everything ends before a lease could end in silence."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

LOOK_SECONDS = 0.2
"""Between two looks at the processes."""
WINDOW_SECONDS = 10.0
"""Stops of one process within this time belong together."""
MOST_STOPS = 3
"""One that is stopped at more looks of a window is stopped on purpose, again and again: it would have no time to hold its lease."""


class Stops(NamedTuple):
    """When each process was found stopped, in seconds of any one clock."""

    found: Mapping[int, tuple[float, ...]] = {}


class Reaction(NamedTuple):
    """Processes that are to go on, or the end of all."""

    resume: tuple[int, ...] = ()
    end_all: bool = False


def react(stops: Stops, stopped: Collection[int], now: float) -> tuple[Stops, Reaction]:
    """One look: the processes that are stopped."""
    kept = {pid: tuple(at for at in times if at > now - WINDOW_SECONDS) for pid, times in stops.found.items()}
    found = {pid: times for pid, times in kept.items() if times}
    for pid in stopped:
        found[pid] = (*found.get(pid, ()), now)
    end_all = any(len(times) > MOST_STOPS for times in found.values())
    return Stops(found), Reaction(resume=tuple(sorted(stopped)), end_all=end_all)
