"""Rules in words, for lists and pages."""

from __future__ import annotations

from toban_schedule.cron import resolve
from toban_schedule.hash_field import uses_hash
from toban_schedule.spec import RuleLike


def describe(spec: RuleLike) -> str:
    """The rule in words: "every 5 minutes", "daily at 03:00 Europe/Berlin", "cron 0 3 * * *"."""
    if spec.interval_seconds is not None:
        return _every(spec.interval_seconds)
    if spec.every_n_minutes is not None:
        return _every(spec.every_n_minutes * 60)
    zone = "" if spec.timezone == "UTC" else f" {spec.timezone}"
    if spec.hourly_at_minute is not None:
        return f"hourly at minute {spec.hourly_at_minute}{zone}"
    if spec.daily_at is not None:
        return f"daily at {spec.daily_at}{zone}"
    if spec.weekly_at is not None:
        return f"weekly on {spec.weekly_at}{zone}"
    text = spec.cron or ""
    # The hash makes it hard to tell when that is: say it.
    drawn = f" = {resolve(text, spec.seed)}" if any(uses_hash(part) for part in text.upper().split()) else ""
    return f"cron {text}{drawn}{zone}"


def _every(seconds: int) -> str:
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds % size == 0 and seconds >= size:
            return f"every {unit}" if seconds == size else f"every {seconds // size} {unit}s"
    return f"every {seconds} seconds"
