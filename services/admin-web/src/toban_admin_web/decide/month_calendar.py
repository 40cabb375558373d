"""A month of a schedule as weeks of days: the slots to come, and what became of those that are past."""

from __future__ import annotations

import calendar
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import islice
from typing import Any

from toban_admin_web.decide.api_models import Fire
from toban_domain.schedule import RuleSpec
from toban_schedule import Rule
from toban_schedule.rule import TICK, YEARS, At
from toban_schedule.slot_count import count_of_day
from toban_schedule.spec import ScheduleError

# Of a day, whose times are shown.
FIRST_SLOTS = 3
_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """`slots` to come with the local times of the first, and the slots that are past by their outcome."""

    day: date
    is_today: bool
    slots: int
    first: tuple[str, ...]
    outcomes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """`weeks` have seven days, Monday first; None for one of another month. `unread_before`: older outcomes of this month were not read."""

    first: date
    zone: str
    weeks: tuple[tuple[Day | None, ...], ...]
    before: str
    after: str
    unread_before: date | None


def month_of(text: str) -> date | None:
    """The first day of a month "2026-12"; None for another text."""
    found = _MONTH.fullmatch(text)
    return date(int(found[1]), int(found[2]), 1) if found and int(found[1]) in YEARS else None


def day_of(text: str) -> date | None:
    """The day "2026-12-03"; None for another text."""
    try:
        return date.fromisoformat(text) if month_of(text[:7]) and len(text) == 10 else None
    except ValueError:
        return None


def rule_of(spec: Mapping[str, Any], name: str) -> Rule | None:
    """The rule of a stored schedule; None where this version cannot read it."""
    try:
        return Rule.of(RuleSpec.from_json({**spec, "name": name}))
    except (ScheduleError, LookupError, TypeError, ValueError, AttributeError):
        return None


def zone_of(rule: Rule) -> tzinfo:
    """Where its days begin: intervals have no zone."""
    return rule.source.clock.zone if isinstance(rule.source, At) else UTC


def month_calendar(
    rule: Rule, first: date, now: datetime, fires: Sequence[Fire], *, zone: str, has_more: bool
) -> Month:
    """The month that begins with `first`; `fires` are the last ones, latest first, and `has_more` that there are older ones."""
    where = zone_of(rule)
    outcomes: dict[date, Counter[str]] = {}
    for fire in fires:
        if fire.first_slot is not None:
            for day, slots in _by_day(rule, fire, fire.first_slot, where).items():
                outcomes.setdefault(day, Counter())[fire.outcome] += slots
    oldest = min(outcomes, default=None) if has_more else None
    today = now.astimezone(where).date()

    def shown(day: date) -> Day | None:
        if day.month != first.month:
            return None
        slots = count_of_day(rule, day, now).slots if day >= today else 0
        return Day(
            day=day,
            is_today=day == today,
            slots=slots,
            first=_first(rule, day, now, slots),
            outcomes=tuple(sorted(outcomes.get(day, Counter()).items())),
        )

    weeks = calendar.Calendar().monthdatescalendar(first.year, first.month)
    return Month(
        first=first,
        zone=zone if isinstance(rule.source, At) else "UTC",
        weeks=tuple(tuple(shown(day) for day in week) for week in weeks),
        before=month_name(first - _DAY),
        after=month_name(first + 31 * _DAY),
        unread_before=oldest if oldest is not None and first < oldest else None,
    )


def _by_day(rule: Rule, fire: Fire, first: datetime, where: tzinfo) -> Mapping[date, int]:
    """The slots of an entry by day. Its first day has them all where the rule was another one then, which has other slots in that time."""
    last = fire.last_slot or first
    begin, end = first.astimezone(where).date(), last.astimezone(where).date()
    if begin < end:
        days = [begin + number * _DAY for number in range((end - begin).days + 1)]
        counts = {day: count_of_day(rule, day, first - TICK).slots for day in days}
        counts[end] -= count_of_day(rule, end, last).slots
        if sum(counts.values()) == fire.slots:
            return {day: slots for day, slots in counts.items() if slots}
    return {begin: fire.slots}


def _first(rule: Rule, day: date, now: datetime, slots: int) -> tuple[str, ...]:
    if not slots:
        return ()
    begin = datetime(day.year, day.month, day.day, tzinfo=zone_of(rule)).astimezone(UTC)
    found = islice(rule.slots_after(max(now, begin - TICK)), min(slots, FIRST_SLOTS))
    local = [slot.astimezone(zone_of(rule)) for slot in found]
    return tuple(f"{one:%H:%M:%S}" if one.second else f"{one:%H:%M}" for one in local)


def month_name(day: date) -> str:
    """Its month for an address; "" for one of a year that has no schedules."""
    return f"{day:%Y-%m}" if day.year in YEARS else ""
