"""How many orders each executor gets beyond its slots, so that a slot that becomes free starts the next run without a round trip.

    ends of a span ──▶ a rate that two spans in a row had ──▶ what the executor starts in AHEAD_SECONDS ──▶ at most `prefetch` a slot

Runs that wait at an executor cannot start elsewhere. So an executor gets only what it starts within moments: nothing while its jobs take long.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from toban_domain.placement import ExecutorLoad

# The ends of so many seconds make a rate. Of two spans in a row the smaller one counts: jobs that end together promise nothing.
SPAN_SECONDS = 0.15
# An executor gets what it starts within so many seconds at its rate: while reports of ends gather there, and until the turn after them.
AHEAD_SECONDS = 0.3
# What waits at an executor takes each slot there that becomes free. When a run that may not wait there has waited for so long, seconds, no order goes
# beyond the slots any more, until no such run waits.
PASSED_OVER_SECONDS = 1.0

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class _Seen:
    """What is known of one executor: when its span began, the ends in it and in the two before, and how many runs it held last."""

    slots: int
    since: float
    held: int
    ends: int = 0
    before: int = 0
    last: int = 0

    def advance(self, now: float) -> None:
        spans = int((now - self.since) / SPAN_SECONDS)
        for _ in range(min(spans, 3)):
            self.before, self.last, self.ends = self.last, self.ends, 0
        self.since += spans * SPAN_SECONDS


class PassedOver(Generic[Key]):
    """Since when runs that need a slot, and may not wait at an executor, have let others wait there before them: by any `Key`, in seconds of a
    monotonic clock."""

    def __init__(self) -> None:
        # Since when, and when last.
        self._since: dict[Key, tuple[float, float]] = {}

    def for_long(self, waiting: Collection[Key], now: float) -> list[Key]:
        """Those of `waiting` that have waited for PASSED_OVER_SECONDS. One that got a slot and waits again soon has waited all the time."""
        self._since = {key: times for key, times in self._since.items() if now - times[1] < PASSED_OVER_SECONDS}
        for key in waiting:
            self._since[key] = self._since.get(key, (now, now))[0], now
        return [key for key in waiting if now - self._since[key][0] >= PASSED_OVER_SECONDS]


class Prefetch:
    """The executors of one term. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def depths(self, now: float, a_slot: int, without: frozenset[str] = frozenset()) -> dict[str, int]:
        """Orders beyond its slots by incarnation, at most `a_slot` for each slot; those of `without` get none."""
        found = {}
        for incarnation, seen in self._seen.items():
            seen.advance(now)
            rate = min(seen.before, seen.last) / SPAN_SECONDS
            depth = min(a_slot * seen.slots, int(rate * AHEAD_SECONDS))
            if depth > 0 and incarnation not in without:
                found[incarnation] = depth
        return found

    def read(self, loads: Sequence[ExecutorLoad], depths: Mapping[str, int], now: float) -> list[ExecutorLoad]:
        """`loads` as they were read at `now`, with the `depths`."""
        known, self._seen = self._seen, {}
        for load in loads:
            seen = known.get(load.incarnation)
            if seen is None:
                seen = _Seen(load.slots, now, load.held)
            seen.advance(now)
            seen.ends += max(0, seen.held - load.held)
            seen.slots, seen.held = load.slots, load.held
            self._seen[load.incarnation] = seen
        return [replace(one, queue=depths[one.incarnation]) if one.incarnation in depths else one for one in loads]

    def sent(self, incarnation: str, runs: int) -> None:
        """So many runs were sent to it since the last read."""
        if (seen := self._seen.get(incarnation)) is not None:
            seen.held += runs
