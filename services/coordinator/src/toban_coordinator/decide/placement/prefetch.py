"""How many orders each executor gets beyond its slots, so that a slot that becomes free starts the next run without a round trip.

    ends of a span ──▶ a rate that two spans in a row had ──▶ what the executor starts in AHEAD_SECONDS ──▶ at most `prefetch` a slot

Runs that wait at an executor cannot start elsewhere. So an executor gets only what it starts within moments: nothing while its jobs take long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from toban_domain.placement import ExecutorLoad

# The ends of so many seconds make a rate. Of two spans in a row the smaller one counts: jobs that end together promise nothing.
SPAN_SECONDS = 0.15
# An executor gets what it starts within so many seconds at its rate: while reports of ends gather there, and until the turn after them.
AHEAD_SECONDS = 0.3


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
