"""A month of many schedules: how many slots come on each day, and the map of the minutes of one."""

from __future__ import annotations

import calendar
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from toban_admin_web.decide.api_models import ComingLoad, CrowdedMinute, LoadMinute, LoadSchedule, Schedule
from toban_admin_web.decide.json_fields import as_object
from toban_admin_web.decide.load_map import HOURS, MINUTES
from toban_admin_web.decide.month_calendar import month_name, rule_of, zone_of
from toban_domain.schedule import RULE_KEYS
from toban_schedule import Rule, minute_counts
from toban_schedule.slot_count import clocks_change, count_of_day

# Slots that are visited for one page, about a second of CPU time: those of a map, and of a month those of the days that are not counted as whole
# ones: today, where a rule starts or ends, and where the clocks change.
MOST_VISITED = 150_000
_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
_RULE = (*RULE_KEYS, "timezone", "dst", "start", "end")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadDay:
    """`zones`: where the clocks change on this day, of the schedules."""

    day: date
    is_today: bool
    slots: int
    zones: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMonth:
    """`weeks` have seven days, Monday first; None for one of another month. `schedules` are counted, the others are not."""

    first: date
    weeks: tuple[tuple[LoadDay | None, ...], ...]
    before: str
    after: str
    schedules: int
    left_out: int
    unreadable: int


def firing(schedules: Iterable[Schedule]) -> list[Schedule]:
    """Those whose slots to come get runs: now, or from the end of a pause or a disable on."""
    return [one for one in schedules if one.enabled and (not _is_off(one) or one.next_run_at)]


def _is_off(one: Schedule) -> bool:
    return one.status != "active" or one.job_disabled


def load_month(schedules: Sequence[Schedule], first: date, now: datetime) -> LoadMonth:
    """The month that begins with `first`. Each schedule counts on the days of its own zone, as its own calendar does."""
    groups, unreadable = _by_rule(schedules)
    days = [day for day in calendar.Calendar().itermonthdates(first.year, first.month) if day.month == first.month]
    slots: Counter[date] = Counter()
    zones: dict[date, set[str]] = {}
    left_out, left = 0, MOST_VISITED
    for rule, named in groups:
        if left <= 0:
            left_out += len(named)
            continue
        zone = zone_of(rule)
        today = now.astimezone(zone).date()
        for day in days:
            if clocks_change(zone, day):
                zones.setdefault(day, set()).add(named[0].timezone)
            if day >= today:
                count = count_of_day(rule, day, now)
                slots[day] += count.slots * len(named)
                left -= count.visited
    today = now.astimezone(UTC).date()

    def shown(day: date) -> LoadDay | None:
        if day.month != first.month:
            return None
        changing = tuple(sorted(zones.get(day, ())))
        return LoadDay(day=day, is_today=day == today, slots=slots[day], zones=changing)

    return LoadMonth(
        first=first,
        weeks=tuple(
            tuple(shown(day) for day in week)
            for week in calendar.Calendar().monthdatescalendar(first.year, first.month)
        ),
        before=month_name(first - _DAY) if first > today else "",
        after=month_name(first + 31 * _DAY),
        schedules=len(schedules) - left_out - unreadable,
        left_out=left_out,
        unreadable=unreadable,
    )


def load_of_day(
    schedules: Sequence[Schedule],
    day: date,
    now: datetime,
    *,
    crowded: int,
    names: int,
    minute: datetime | None = None,
    all_names: int = 0,
) -> tuple[ComingLoad, list[CrowdedMinute]]:
    """The minutes of a day of UTC as coordinators count those of the next 24 hours, and the most crowded ones with `names` schedules each.

    Besides, `minute` with `all_names` schedules, when it has slots to come.
    """
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    groups, unreadable = _by_rule(schedules)
    slots: Counter[int] = Counter()
    counted: list[tuple[Mapping[int, int], Sequence[Schedule]]] = []
    left_out, left = 0, MOST_VISITED
    for rule, named in groups:
        if left <= 0:
            left_out += len(named)
            continue
        minutes = minute_counts(rule, begin, HOURS * MINUTES)
        left -= len(minutes)
        if minutes:
            counted.append((minutes, named))
            slots.update({at: many * len(named) for at, many in minutes.items()})
    coming = {at: many for at, many in sorted(slots.items()) if begin + at * _MINUTE > now}
    most = sorted(coming, key=lambda at: (-coming[at], at))[:crowded]
    chosen = [(minute - begin) // _MINUTE] if minute else []
    load = ComingLoad(
        read_at=now,
        begin=begin,
        minutes=[LoadMinute(at=begin + at * _MINUTE, slots=many) for at, many in coming.items()],
        crowded=[_crowded(begin, at, counted, names) for at in most],
        schedules=sum(len(named) for _, named in counted),
        left_out=left_out,
        unreadable=unreadable,
    )
    return load, [_crowded(begin, at, counted, all_names) for at in chosen if at in coming]


def _crowded(
    begin: datetime, at: int, counted: Iterable[tuple[Mapping[int, int], Sequence[Schedule]]], names: int
) -> CrowdedMinute:
    here = sorted(
        ((one.name, one, minutes[at]) for minutes, named in counted if at in minutes for one in named),
        key=lambda found: found[0],
    )
    return CrowdedMinute(
        at=begin + at * _MINUTE,
        slots=sum(slots for _, _, slots in here),
        schedules=len(here),
        named=[
            LoadSchedule(schedule=name, job=one.job, slots=slots, version=one.version)
            for name, one, slots in here[:names]
        ],
    )


def _by_rule(schedules: Iterable[Schedule]) -> tuple[list[tuple[Rule, list[Schedule]]], int]:
    """Schedules with one rule are counted together; and how many have a rule that this release cannot read. H in a cron draws from the name.

    The next run of what is off comes after that has ended: its rule starts there.
    """
    groups: dict[str, tuple[Rule | None, list[Schedule]]] = {}
    for one in schedules:
        spec = {key: value for key, value in as_object(one.spec).items() if key in _RULE}
        drawn = one.name if "H" in str(spec.get("cron", "")).upper() else ""
        since = one.next_run_at if _is_off(one) else None
        key = json.dumps([spec, drawn, str(since)], sort_keys=True)
        if key not in groups:
            rule = rule_of(spec, one.name)
            groups[key] = (replace(rule, start=since) if rule and since else rule, [])
        groups[key][1].append(one)
    unreadable = sum(len(named) for rule, named in groups.values() if rule is None)
    return [(rule, named) for rule, named in groups.values() if rule is not None], unreadable
