"""A cron expression in words, made of the values that match. What no short sentence says has no words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toban_admin_web.decide.schedule_text import WEEKDAYS
from toban_schedule.cron import PlainCron, parse_cron
from toban_schedule.spec import ScheduleError

# Of times, minutes or days that are named one by one.
MOST_NAMED = 6
Text = Callable[..., str]
"""A text by its key and its values."""


def cron_words(expression: str, seed: str, text: Text) -> str:
    """The words, with H as it is drawn from `seed`; "" without any."""
    try:
        cron = parse_cron(expression, seed).plain()
    except ScheduleError:
        return ""
    if cron is None or len(cron.days) > MOST_NAMED:
        return ""
    times, days = _times(cron, text), _days(cron, text)
    if not times:
        return ""
    months = text("rule.and").join(text(f"month.{number}") for number in cron.months) if len(cron.months) < 12 else ""
    clocks = text("rule.and").join(_clocks(cron))
    if clocks and not months and not cron.days and not cron.last_day:
        return text("rule.weekly", days=days, time=clocks) if days else text("rule.daily", time=clocks)
    parts = [text("rule.in_months", months=months)] if months else []
    if days:
        kind = "of_month" if cron.days else "on_days"
        parts.append(text("rule.last_day") if cron.last_day else text(f"rule.{kind}", days=days))
    return text("rule.join").join([*parts, *times])


def _days(cron: PlainCron, text: Text) -> str:
    """Days of the month, or weekdays, one by one; "" for every day."""
    if cron.last_day:
        return text("rule.last_day")
    weekdays = [text(f"weekday.{day}") for number, day in enumerate(WEEKDAYS) if (number + 1) % 7 in cron.weekdays]
    return text("rule.and").join([*map(str, cron.days), *weekdays])


def _times(cron: PlainCron, text: Text) -> list[str]:
    """When it is on a day that matches."""
    if clocks := _clocks(cron):
        return [text("rule.times", times=text("rule.and").join(clocks))]
    every_hour, every_minute = len(cron.hours) == 24, len(cron.minutes) == 60
    if cron.seconds != (0,):
        step = _step(cron.seconds, 60)
        return [text("rule.every.s", n=step)] if step and every_minute and every_hour else []
    if (step := _step(cron.hours, 24)) > 1 and len(cron.minutes) == 1:
        minute = [text("rule.minute", minute=f"{cron.minutes[0]:02d}")] if cron.minutes[0] else []
        return [text("rule.every.h", n=step), *minute]
    if step := _step(cron.minutes, 60):
        within = [text("rule.every.m", n=step)]
    elif len(cron.minutes) <= MOST_NAMED:
        within = [text("rule.hourly", minute=text("rule.and").join(f"{minute:02d}" for minute in cron.minutes))]
    else:
        return []
    if every_hour:
        return within
    first, last = cron.hours[0], cron.hours[-1]
    if last - first != len(cron.hours) - 1:
        return []
    between = {"first": f"{first:02d}:{cron.minutes[0]:02d}", "last": f"{last:02d}:{cron.minutes[-1]:02d}"}
    return [*within, text("rule.between", **between)]


def _clocks(cron: PlainCron) -> list[str]:
    """The times of a day one by one; none where they are too many."""
    if len(cron.hours) * len(cron.minutes) * len(cron.seconds) > MOST_NAMED:
        return []
    with_seconds = cron.seconds != (0,)
    return [
        f"{hour:02d}:{minute:02d}" + (f":{second:02d}" if with_seconds else "")
        for hour in cron.hours
        for minute in cron.minutes
        for second in cron.seconds
    ]


def _step(values: Sequence[int], size: int) -> int:
    """The n of "every n", which begins with 0 and goes on over the end; 0 where there is none."""
    step = size // len(values)
    return step if len(values) > 1 and tuple(values) == tuple(range(0, size, step)) and size % step == 0 else 0
