"""Cron expressions over local times without a zone: parsing with errors by field, and the walk from match to match."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from cronsim import CronSim, CronSimError
from cronsim.cronsim import Field

from toban_schedule.spec import ScheduleError

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS = ("second", "minute", "hour", "day of month", "month", "day of week")
_RANGES = ("0-59", "0-59", "0-23", "1-31, L or LW", "1-12 or JAN-DEC", "0-7 or SUN-SAT, with #n or L")
_ORIGIN = datetime(2000, 1, 1)  # noqa: DTZ001 (local time without a zone; only a place to parse from)
_EVERY_HOUR = frozenset(range(24))


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression. `every_hour`: its hour field matches all 24 hours, so it follows the clock and no DST policy applies."""

    expression: str
    every_hour: bool
    _template: CronSim = field(repr=False, compare=False)

    def walls(self, after: datetime) -> Iterator[datetime]:
        """Matching local times (naive) strictly after `after` (naive), in order; ends when there is none for 50 years."""
        # Parsing costs more than a step: each walk is a copy of the parsed state, which steps never change in place.
        walk = copy.copy(self._template)
        walk.dt = after.replace(microsecond=0)
        return walk


@lru_cache(maxsize=4096)
def parse_cron(text: str) -> Cron:
    """The expression; raises ScheduleError naming the field that is wrong, or when it can never fire."""
    expression = ALIASES.get(text.strip().lower(), text.strip())
    if expression.startswith("@"):
        known = ", ".join(ALIASES)
        raise ScheduleError("cron", f"{text!r} is not an alias", f"use {known}, or interval_seconds")
    parts = expression.upper().split()
    if len(parts) not in (5, 6):
        raise ScheduleError(
            "cron",
            f"{text!r} has {len(parts)} fields",
            "write 5 (minute hour day month weekday), or 6 with seconds first",
        )
    _check_fields(text, parts)
    try:
        template = CronSim(expression, _ORIGIN)
    except CronSimError:
        raise never_fires(text) from None
    cron = Cron(expression, frozenset(template.hours) >= _EVERY_HOUR, template)
    if next(cron.walls(_ORIGIN), None) is None:
        raise never_fires(text)
    return cron


def never_fires(text: str) -> ScheduleError:
    """The error of an expression without a single slot."""
    return ScheduleError(
        "cron", f"{text!r} never fires", "look at day of month, month and day of week: no date has them all"
    )


def _check_fields(text: str, parts: list[str]) -> None:
    offset = 6 - len(parts)
    for index, part in enumerate(parts, start=offset):
        if re.fullmatch(r"H([/(].*)?", part):
            raise ScheduleError(
                "cron", f"{text!r} uses H in the {_FIELDS[index]}", "H is not available in this version, write a number"
            )
        try:
            Field(index).parse(part)
        except (CronSimError, ValueError, AssertionError, TypeError):
            raise ScheduleError(
                "cron", f"{part!r} is not a {_FIELDS[index]} in {text!r}", f"use {_RANGES[index]}, with * , - /"
            ) from None
