"""New minutes for schedules that fire in one crowded minute. Only a rule with one fixed minute is moved, and only within its hour, so that
hour, weekday and date stay as they were written."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toban_schedule.cron import ALIASES

LAST_MINUTE = 59
# Why a schedule is left alone.
REASONS = ("period", "drawn", "several", "past_hour", "seconds", "changed")
_TIME = re.compile(r"(.*?)(\d{1,2}):(\d{2})((?::\d{2})?\s*)", re.ASCII)
_HASH = re.compile(r"(^|,)H([/(,]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A schedule with its rule as it was and as it becomes; both are the same for one that stays in its minute."""

    name: str
    key: str
    before: str
    after: str
    spec: Mapping[str, Any]

    @property
    def stays(self) -> bool:
        """Whether nothing of it changes."""
        return self.before == self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A schedule that is left alone; `reason` is one of REASONS."""

    name: str
    rule: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Both by name. `movable`: how many could take part."""

    moves: Sequence[Move]
    left: Sequence[Left]
    movable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fixed:
    """The one minute of a rule, and the rule with another one."""

    key: str
    before: str
    minute: int
    with_minute: Callable[[int], Any]


def spread(
    specs: Mapping[str, Mapping[str, Any]], count: int, minutes: int, *, changed: Collection[str] = ()
) -> Spread:
    """The first `count` of the schedules that can be moved, evenly over `minutes` minutes from their own one on; the first ones stay in it.

    `changed`: those that may fire in another minute by now.
    """
    fixed: dict[str, _Fixed] = {}
    left: list[Left] = []
    for name in sorted(specs):
        found = "changed" if name in changed else _fixed(specs[name])
        if isinstance(found, str):
            left.append(Left(name=name, rule=_shown(specs[name]), reason=found))
        elif found.minute + minutes - 1 > LAST_MINUTE:
            left.append(Left(name=name, rule=_shown(specs[name]), reason="past_hour"))
        else:
            fixed[name] = found
    chosen = list(fixed.items())[:count]
    moves = [_move(name, specs[name], one, place * minutes // len(chosen)) for place, (name, one) in enumerate(chosen)]
    return Spread(moves=moves, left=left, movable=len(fixed))


def _move(name: str, spec: Mapping[str, Any], one: _Fixed, offset: int) -> Move:
    after = one.with_minute(one.minute + offset) if offset else spec[one.key]
    return Move(
        name=name,
        key=one.key,
        before=one.before,
        after=str(after),
        spec={**spec, one.key: after},
    )


def _fixed(spec: Mapping[str, Any]) -> _Fixed | str:
    """The minute of a rule that has exactly one, else why it has none."""
    if (hourly := spec.get("hourly_at_minute")) is not None:
        return _Fixed(key="hourly_at_minute", before=str(hourly), minute=int(hourly), with_minute=lambda minute: minute)
    for key in ("daily_at", "weekly_at"):
        if spec.get(key) is not None:
            return _clock(key, str(spec[key]))
    return _cron(str(spec["cron"])) if spec.get("cron") is not None else "period"


def _clock(key: str, text: str) -> _Fixed | str:
    found = _TIME.fullmatch(text)
    if found is None:
        return "several"
    days, hour, minute, rest = found.groups()
    return _Fixed(key=key, before=text, minute=int(minute), with_minute=lambda given: f"{days}{hour}:{given:02d}{rest}")


def _cron(text: str) -> _Fixed | str:
    fields = ALIASES.get(text.strip().lower(), text).split()
    if len(fields) not in (5, 6):
        return "several"
    at = len(fields) - 5
    if _HASH.search(fields[at]):
        return "drawn"
    if not (fields[at].isascii() and fields[at].isdigit()):
        return "several"
    if at and not (fields[0].isascii() and fields[0].isdigit()):
        return "seconds"

    def with_minute(minute: int) -> str:
        return " ".join([*fields[:at], str(minute), *fields[at + 1 :]])

    return _Fixed(key="cron", before=text, minute=int(fields[at]), with_minute=with_minute)


def _shown(spec: Mapping[str, Any]) -> str:
    keys = ("interval_seconds", "every_n_minutes", "hourly_at_minute", "daily_at", "weekly_at", "cron")
    return next((f"{key}: {spec[key]}" for key in keys if spec.get(key) is not None), "")
