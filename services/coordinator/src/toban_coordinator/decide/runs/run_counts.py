"""How many runs ran in a span of time: its intervals, and the counts of groups in them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from toban_domain.errors import ErrorCode, TobanError

BY = ("job", "executor")
"""The first one is meant where a caller names none."""
MOST_INTERVALS = 500
LONGEST_INTERVAL = 366 * 86_400
DEFAULT_SPAN = timedelta(hours=1)
# Longer than any span: all of it is the first interval.
_WHOLE = 1 << 40


@dataclass(slots=True)
class Group:
    """The runs of an executor or job by state, and in each interval by state. `name` "": those of `others` groups."""

    name: str
    others: int
    runs: Counter[str] = field(default_factory=Counter)
    intervals: Mapping[datetime, Counter[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """From `since` until `until`, in intervals of so many seconds, counted from 1970 on."""

    since: datetime
    until: datetime
    interval: int

    @classmethod
    def of(cls, since: datetime | None, until: datetime | None, *, seconds: int, now: datetime) -> Span:
        """As a caller asks for it. Raises INVALID_ARGUMENT."""
        end = min(until or now, now)
        begin = (end - DEFAULT_SPAN) if since is None else min(since, end)
        if not 0 <= seconds <= LONGEST_INTERVAL:
            message = (
                f"interval_seconds is {seconds}; use 0 for the whole span, or a length of at most {LONGEST_INTERVAL}"
            )
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
        span = cls(begin, end, seconds or _WHOLE)
        if seconds and (end - begin).total_seconds() / seconds > MOST_INTERVALS:
            least = int((end - begin).total_seconds() // MOST_INTERVALS) + 1
            message = f"interval_seconds is {seconds}: more than {MOST_INTERVALS} intervals; use {least} or more, or a shorter span"
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
        return span

    def later_half(self) -> Span | None:
        """The part that is left when the earlier one is not counted: whole intervals; None when it cannot be shorter."""
        middle = self.since + (self.until - self.since) / 2
        if self.interval != _WHOLE:
            edge = -(-middle.timestamp() // self.interval) * self.interval
            middle = datetime.fromtimestamp(edge, UTC)
        return Span(middle, self.until, self.interval) if self.since < middle < self.until else None

    def at(self, interval: int) -> datetime:
        """The begin of an interval."""
        return self.since if self.interval == _WHOLE else datetime.fromtimestamp(interval * self.interval, UTC)


def groups(rows: Iterable[Mapping[str, Any]], span: Span) -> Sequence[Group]:
    """Of rows with name, others, state, first and last interval, and how many runs they stand for; most runs first, others last."""
    found: dict[str, Group] = {}
    changes: dict[str, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in rows:
        group = found.setdefault(row["name"], Group(row["name"], row["others"]))
        group.runs[row["state"]] += row["runs"]
        changes[row["name"]][row["first"]][row["state"]] += row["runs"]
        changes[row["name"]][row["last"] + 1][row["state"]] -= row["runs"]
    for name, group in found.items():
        group.intervals = _intervals(changes[name], span)
    return sorted(found.values(), key=lambda one: (not one.name, -one.runs.total(), one.name))


def _intervals(changes: Mapping[int, Mapping[str, int]], span: Span) -> dict[datetime, Counter[str]]:
    """Each interval in which something ran: between two changes all are alike."""
    found: dict[datetime, Counter[str]] = {}
    now: Counter[str] = Counter()
    for first, after in pairwise(sorted(changes)):
        now.update(changes[first])
        if here := +now:
            found.update((span.at(one), here) for one in range(first, after))
    return found
