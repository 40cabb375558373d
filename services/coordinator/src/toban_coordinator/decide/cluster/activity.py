"""The last 24 hours in intervals of five minutes: which of them are read next, and what is known of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

INTERVAL = 300
"""Seconds."""
INTERVALS = 24 * 3600 // INTERVAL
# Intervals of one read.
CHUNK = 12
# A cut-off executor reports ends of up to a day ago: what is older than the newest intervals is read again after this, seconds.
STALE_SECONDS = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Runs that ended in it by result; `wait`: how long 95 % of those that began had waited at most, seconds; `busy`: slots in use on average.

    `begins_at` is seconds since 1970.
    """

    begins_at: int
    succeeded: int = 0
    failed: int = 0
    other: int = 0
    wait: float | None = None
    busy: float = 0.0


def due(read_at: Mapping[int, float], *, last: int, now: float) -> Iterator[tuple[int, int]]:
    """The spans to read, the most important first, as (first, last) interval; `last` is the current one.

    The current interval and the one before change with each end. Of the others those that are not in `read_at` are next, then one span of those that
    were read long ago; `now` is the clock of `read_at`.
    """
    yield last - 1, last
    others = range(last - 2, last - INTERVALS, -1)
    missing = [number for number in others if number not in read_at]
    while missing:
        until = missing[0]
        yield max(until - CHUNK + 1, last - INTERVALS + 1), until
        missing = [number for number in missing if number <= until - CHUNK]
    oldest = min(others, key=lambda number: read_at.get(number, now))
    if now - read_at.get(oldest, now) >= STALE_SECONDS:
        first = max(oldest - CHUNK + 1, last - INTERVALS + 1)
        yield first, min(first + CHUNK - 1, last - 2)


def intervals(
    ended: Mapping[int, Sequence[Mapping[str, Any]]], live: Iterable[Mapping[str, Any]], *, now: float
) -> list[Interval]:
    """Those that were read, the oldest first. `ended` has the rows of each interval by its number, `live` the runs that go on at `now`."""
    last = int(now // INTERVAL)
    seconds: dict[int, float] = {}
    for row in (row for rows in ended.values() for row in rows if row["first"] is not None):
        _add(seconds, row["first"], row["in_first"])
        _add(seconds, row["last"], row["in_last"])
        for number in range(max(row["first"] + 1, last - INTERVALS), row["last"]):
            _add(seconds, number, INTERVAL * row["runs"])
    for row in live:
        _add(seconds, row["first"], row["in_first"])
        for number in range(max(row["first"] + 1, last - INTERVALS), last + 1):
            _add(seconds, number, row["runs"] * min(INTERVAL, now - number * INTERVAL))
    return [_interval(number, ended[number], seconds.get(number, 0.0), now) for number in sorted(ended)]


def _add(seconds: dict[int, float], number: int, more: float) -> None:
    seconds[number] = seconds.get(number, 0.0) + more


def _interval(number: int, rows: Sequence[Mapping[str, Any]], seconds: float, now: float) -> Interval:
    succeeded, failed = (sum(row[name] for row in rows) for name in ("succeeded", "failed"))
    return Interval(
        begins_at=number * INTERVAL,
        succeeded=succeeded,
        failed=failed,
        other=sum(row["runs"] for row in rows) - succeeded - failed,
        wait=rows[0]["wait"] if rows else None,
        busy=max(0.0, seconds) / max(1.0, min(INTERVAL, now - number * INTERVAL)),
    )
