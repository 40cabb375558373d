"""How many slots come in each minute of a day, and which schedules fire in the most crowded minutes."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain, islice
from typing import Any

from toban_domain.schedule import RuleSpec
from toban_schedule import Rule, ScheduleError, minute_counts
from toban_schedule.cron import resolve
from toban_schedule.hash_field import uses_hash

MINUTE = timedelta(minutes=1)
MINUTES = 24 * 60

Minutes = Mapping[int, int]
"""Minute, counted from the begin → its slots."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a person's rules decide by: job and scope of a schedule."""

    job: str
    scope: str
    scope_id: str


@dataclass(frozen=True, slots=True)
class Firing:
    """A schedule that fires."""

    name: str
    version: int
    use: Use


@dataclass(frozen=True, slots=True)
class Group:
    """Schedules, by name, that fire in the same minutes."""

    minutes: Minutes
    firings: Sequence[Firing]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A schedule that fires in a minute, with its slots in it."""

    schedule: str
    job: str
    slots: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowded:
    """A minute with the first of its schedules; `schedules` counts all of them."""

    minute: int
    slots: int
    schedules: int
    named: Sequence[Named]


class UnreadableRule(Exception):
    """A stored rule that this release cannot read."""


def rule_key(rule: str, name: str) -> str:
    """What tells the slots of one rule (JSON) from another's: the rule itself, with what a cron expression draws from the name.

    Raises UnreadableRule.
    """
    try:
        drawn = _drawn(rule)
        return json.dumps({**drawn, "cron": resolve(drawn["cron"], name)}) if drawn else rule
    except (ScheduleError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableRule(str(error)) from None


@lru_cache(maxsize=4096)
def _drawn(rule: str) -> Mapping[str, Any] | None:
    """The parsed rule when its cron expression has an H; None for every other one."""
    data = json.loads(rule)
    cron = data.get("cron")
    return data if cron and any(uses_hash(part) for part in cron.upper().split()) else None


def minutes_of(key: str, begin: datetime) -> Minutes:
    """The slots of a rule, as `rule_key` has it, in the minutes of a day from `begin` on. Raises UnreadableRule."""
    try:
        return minute_counts(Rule.of(RuleSpec.from_json(json.loads(key))), begin, MINUTES)
    except (ScheduleError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise UnreadableRule(str(error)) from None


def visible(groups: Iterable[Group], seen: frozenset[Use]) -> list[Group]:
    """The groups with those schedules alone that a person may see."""
    kept = (Group(one.minutes, [firing for firing in one.firings if firing.use in seen]) for one in groups)
    return [one for one in kept if one.firings]


def schedules_of(groups: Iterable[Group], uses: frozenset[Use]) -> int:
    """How many schedules have one of these jobs and scopes."""
    return sum(firing.use in uses for group in groups for firing in group.firings) if uses else 0


def slots_by_minute(groups: Iterable[Group], first: int) -> dict[int, int]:
    """Minute → slots, in the order of the minutes from `first` on; those without slots are left out."""
    counts: Counter[int] = Counter()
    for group in groups:
        many = len(group.firings)
        for minute, slots in group.minutes.items():
            counts[minute] += slots * many
    return {minute: counts[minute] for minute in sorted(counts) if minute >= first}


def most_crowded(slots: Mapping[int, int], limit: int) -> list[int]:
    """The minutes with the most slots, the earlier one of two that are equal first."""
    return heapq.nsmallest(limit, slots, key=lambda minute: (-slots[minute], minute))


def crowded(groups: Iterable[Group], minute: int, names: int) -> Crowded:
    """What fires in a minute; the first `names` schedules by name."""
    here = [group for group in groups if minute in group.minutes]
    first = chain.from_iterable(
        ((firing, group.minutes[minute]) for firing in islice(group.firings, names)) for group in here
    )
    named = heapq.nsmallest(names, first, key=lambda one: one[0].name)
    return Crowded(
        minute=minute,
        slots=sum(group.minutes[minute] * len(group.firings) for group in here),
        schedules=sum(len(group.firings) for group in here),
        named=[
            Named(schedule=firing.name, job=firing.use.job, slots=slots, version=firing.version)
            for firing, slots in named
        ],
    )


def schedules_from(groups: Iterable[Group], first: int) -> int:
    """How many schedules have a slot in minute `first` or later."""
    return sum(len(group.firings) for group in groups if max(group.minutes, default=-1) >= first)
