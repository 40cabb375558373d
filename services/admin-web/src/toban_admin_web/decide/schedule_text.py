"""The rule of a schedule as a message for the translations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toban_admin_web.decide.durations import DAY, HOUR, MINUTE
from toban_admin_web.decide.translations import Message

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def rule_message(spec: Mapping[str, Any]) -> Message | None:
    """The message for a schedule's spec; None for a rule that is unknown here."""
    if isinstance(seconds := spec.get("interval_seconds"), int):
        return _every(seconds)
    if isinstance(minutes := spec.get("every_n_minutes"), int):
        return _every(minutes * MINUTE)
    if isinstance(minute := spec.get("hourly_at_minute"), int):
        return "rule.hourly", {"minute": f"{minute:02d}"}
    if isinstance(at := spec.get("daily_at"), str):
        return "rule.daily", {"time": at}
    if isinstance(cron := spec.get("cron"), str):
        return "rule.cron", {"cron": cron}
    return None


def weekly_rule(spec: Mapping[str, Any]) -> tuple[tuple[str, ...], str] | None:
    """Weekdays (mon … sun) and the local time of a weekly rule; None for another rule."""
    text = spec.get("weekly_at")
    if not isinstance(text, str):
        return None
    days, _, time = text.strip().rpartition(" ")
    named: list[str] = []
    for part in days.split(","):
        first, _, last = (day.strip().lower()[:3] for day in part.partition("-"))
        if first not in WEEKDAYS or (last or first) not in WEEKDAYS:
            return None
        begin = WEEKDAYS.index(first)
        named += [WEEKDAYS[(begin + step) % 7] for step in range((WEEKDAYS.index(last or first) - begin) % 7 + 1)]
    return tuple(sorted(set(named), key=WEEKDAYS.index)), time


def _every(seconds: int) -> Message:
    for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE)):
        if seconds >= size and seconds % size == 0:
            return f"rule.every.{unit}", {"n": str(seconds // size)}
    return "rule.every.s", {"n": str(seconds)}
