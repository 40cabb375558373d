"""Rules in words, for lists and pages."""

from __future__ import annotations

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
    return f"weekly on {spec.weekly_at}{zone}" if spec.weekly_at is not None else f"cron {spec.cron}{zone}"


def _every(seconds: int) -> str:
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds % size == 0 and seconds >= size:
            return f"every {unit}" if seconds == size else f"every {seconds // size} {unit}s"
    return f"every {seconds} seconds"
