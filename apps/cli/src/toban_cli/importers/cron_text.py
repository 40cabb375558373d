"""A cron expression of Kubernetes, Airflow or Celery as the rule of a schedule, with the differences between their crons."""

from __future__ import annotations

import re

from toban_cli.importers.crontab.schedule_rule import TimingError, read_timing
from toban_cli.importers.crontab.time_fields import FIELDS

_ONE_STEP = re.compile(r"(\d+)/(\d+)")


def read_cron(text: str, *, both_days: bool | None = None) -> tuple[dict[str, object], list[str], bool]:
    """The rule, its notes, and whether it names hours; raises TimingError.

    `both_days`: whether a day of month and a day of week must both match; None = as in robfig/cron of Kubernetes, so that both must
    match where one of them has a * without a larger step, and one is enough elsewhere.
    """
    fields = text.split()
    if text.startswith("@"):
        timing = read_timing(" ".join(fields), "", _no_random)
        return timing.rule, list(timing.notes), timing.names_hours
    if len(fields) != len(FIELDS):
        raise TimingError(
            f"{text!r} has {len(fields)} fields, and not five; write the schedule by hand (cron with six has seconds first)"
        )
    fields = ["*" if field == "?" else _with_end(field, place) for place, field in enumerate(fields)]
    timing = read_timing(" ".join(fields), "", _no_random)
    day, weekday = fields[2], fields[4]
    if day != "*" and weekday != "*":
        if both_days is None:
            both_days = any(item in ("*", "*/1") for item in f"{day},{weekday}".split(","))
        starred = day.startswith("*") or weekday.startswith("*")
        if both_days != starred:
            needed = "both must match" if both_days else "either may match"
            raise TimingError(
                f"{text!r} gives day of month and day of week, of which {needed}, and Toban's cron reads it otherwise; write it by hand"
            )
    return timing.rule, [note.removesuffix(", as in cron") for note in timing.notes], timing.names_hours


def _with_end(field: str, place: int) -> str:
    """5/15 as 5-59/15, which is what these crons mean."""
    high = min(FIELDS[place].high, 6) if place == len(FIELDS) - 1 else FIELDS[place].high
    return ",".join(
        f"{found[1]}-{high}/{found[2]}" if (found := _ONE_STEP.fullmatch(item)) else item for item in field.split(",")
    )


def _no_random(what: str, size: int) -> int:
    del size
    raise TimingError(f"{what}: a random range is not of this scheduler; write a number")
