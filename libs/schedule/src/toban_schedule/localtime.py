"""From local times to instants, by the DST policy of a schedule.

A change of the clocks leaves local times out (a gap) or repeats them (a fold). Images of later local times are never earlier than `floor` of
an earlier one; that is what lets an iteration stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

_SECOND = timedelta(seconds=1)
# Longer than any change of the clocks so far (a zone that crosses the date line loses a whole day).
LOOK_BACK = timedelta(hours=25)

# Steps in which changes of the clocks are looked for: zones keep an offset for weeks.
_LOOK = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Images:
    """The instants of one local time under a policy; `floor` is the earliest instant that it or a later local time may have."""

    instants: tuple[datetime, ...]
    floor: datetime
    plain: bool


@dataclass(frozen=True, slots=True)
class LocalClock:
    """A zone with a policy: gap skip | shift | run_after, fold first | second | both."""

    zone: tzinfo
    gap: str
    fold: str

    def images(self, wall: datetime) -> Images:
        """The instants (UTC) of a local time (naive)."""
        first, second = self._instant(wall, 0), self._instant(wall, 1)
        if first == second:
            return Images((first,), first, True)
        if first < second:
            both = {"first": (first,), "second": (second,), "both": (first, second)}
            return Images(both[self.fold], first, False)
        # In a gap fold=0 counts with the offset before the change (later instant), fold=1 with the one after it.
        if self.gap == "skip":
            return Images((), second, False)
        return Images((first if self.gap == "shift" else self._change(second, first),), second, False)

    def exists(self, wall: datetime) -> bool:
        """False when a change of the clocks leaves this local time (naive) out."""
        return self._instant(wall, 0) <= self._instant(wall, 1)

    def first_of(self, wall: datetime) -> datetime:
        """The earlier instant (UTC) of a local time that comes twice."""
        return self._instant(wall, 0)

    def gap_end(self, wall: datetime) -> datetime:
        """The instant (UTC) of the change that leaves this local time out."""
        return self._change(self._instant(wall, 1), self._instant(wall, 0))

    def next_change(self, after: datetime, until: datetime) -> datetime | None:
        """The first instant (UTC) in (after, until] at which the clocks change; changes that undo each other within a week are not seen."""
        before, known = after.astimezone(UTC).replace(microsecond=0), self._offset(after)
        while before < until:
            following = min(before + _LOOK, until)
            if self._offset(following) != known:
                return self._change(before, following)
            before = following
        return None

    def changed_walls(self, change: datetime) -> tuple[datetime, datetime]:
        """The local times (naive) that the clocks leave out or repeat at `change`: from … up to, without the second."""
        ends = [
            (change + offset).replace(tzinfo=None) for offset in (self._offset(change - _SECOND), self._offset(change))
        ]
        return min(ends), max(ends)

    def wall_before(self, after: datetime) -> datetime:
        """A local time (naive) that no local time with an instant strictly after `after` precedes."""
        wall = after.astimezone(self.zone).replace(tzinfo=None, fold=0)
        first, second = self._instant(wall, 0), self._instant(wall, 1)
        # Within a fold earlier local times still have their second instant; after a gap shifted ones may be to come.
        back = abs(second - first) + abs(self._offset(after) - self._offset(after - LOOK_BACK))
        return wall - back

    def _instant(self, wall: datetime, fold: int) -> datetime:
        return wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)

    def _offset(self, instant: datetime) -> timedelta:
        offset = instant.astimezone(self.zone).utcoffset()
        return offset if offset is not None else timedelta(0)

    def _change(self, before: datetime, at_or_after: datetime) -> datetime:
        """The instant of the change: the first in (before, at_or_after] with the new offset."""
        new = self._offset(at_or_after)
        while at_or_after - before > _SECOND:
            middle = before + (at_or_after - before) // (2 * _SECOND) * _SECOND
            if self._offset(middle) == new:
                at_or_after = middle
            else:
                before = middle
        return at_or_after
