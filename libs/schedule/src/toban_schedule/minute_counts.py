"""How many slots each minute of a span has. A rule of every second costs no more than one of every minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from toban_schedule.rule import TICK, At, Every, Rule
from toban_schedule.slot_count import slots_between

MINUTE = timedelta(minutes=1)


def minute_counts(rule: Rule, begin: datetime, minutes: int) -> Mapping[int, int]:
    """Minute, counted from `begin` (a whole one), → its slots; `minutes` of them, without those that have no slot.

    Where a rule has several slots a minute, a minute in which it starts or ends counts as a whole one.
    """
    until = begin + minutes * MINUTE
    first = begin if rule.start is None else max(begin, rule.start.replace(second=0, microsecond=0))
    last = until if rule.end is None else min(until, rule.end)
    if first >= last:
        return {}
    if isinstance(rule.source, Every) and rule.source.period < MINUTE:
        return dict(_short_periods(rule.source, begin, first, last))
    factor = 1
    if isinstance(rule.source, At):
        cron, factor = rule.source.cron.by_minute()
        found = slots_between(replace(rule.source, cron=cron), first - TICK, last - TICK)
    else:
        found = _periods(rule.source, first, last)
    exact = rule.start if factor == 1 else None
    counts: Counter[int] = Counter()
    for slot in found:
        if exact is None or slot >= exact:
            counts[(slot - begin) // MINUTE] += factor
    return dict(counts)


def _periods(every: Every, first: datetime, last: datetime) -> set[datetime]:
    found: set[datetime] = set()
    slot = every.next(first - TICK)
    while slot is not None and slot < last:
        found.add(slot)
        slot = every.next(slot)
    return found


def _short_periods(every: Every, begin: datetime, first: datetime, last: datetime) -> Iterator[tuple[int, int]]:
    minute = first
    while minute < last:
        slot = every.next(minute - TICK)
        assert slot is not None
        slots = (minute + MINUTE - TICK - slot) // every.period + 1
        yield (minute - begin) // MINUTE, slots
        minute += MINUTE
