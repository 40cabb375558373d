"""A schedule's rule, as a message's name and its values: the catalogue has the words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toban_admin_web.decide.spans import DAY, HOUR, MINUTE, Words

_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def rule_words(spec: Mapping[str, Any]) -> Words | None:
    """Words for the spec of a schedule; None when it has no rule that is known here."""
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


def weekly(spec: Mapping[str, Any]) -> tuple[tuple[str, ...], str] | None:
    """Weekdays (mon … sun) and the local time of a weekly rule; None for another rule."""
    text = spec.get("weekly_at")
    if not isinstance(text, str):
        return None
    days, _, time = text.strip().partition(" ")
    named = tuple(day.strip().lower()[:3] for day in days.split(","))
    return (named, time) if all(day in _WEEKDAYS for day in named) else None


def _every(seconds: int) -> Words:
    for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE)):
        if seconds >= size and seconds % size == 0:
            return f"rule.every.{unit}", {"n": str(seconds // size)}
    return "rule.every.s", {"n": str(seconds)}
