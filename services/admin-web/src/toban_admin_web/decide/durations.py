"""Durations and ages as messages for the translations."""

from __future__ import annotations

from datetime import datetime

from toban_admin_web.decide.translations import Message

MINUTE, HOUR, DAY = 60, 3600, 86_400


def duration(seconds: float) -> Message:
    """0.42 s, 5.0 s, 3 m 12 s, 2 h 05 m, 3 d 04 h."""
    seconds = max(0.0, seconds)
    if seconds < MINUTE:
        return "duration.s", {"s": f"{seconds:.2f}" if seconds < 1 else f"{seconds:.1f}"}
    whole = int(seconds)
    if whole < HOUR:
        return "duration.ms", {"m": str(whole // MINUTE), "s": f"{whole % MINUTE:02d}"}
    if whole < 2 * DAY:
        return "duration.hm", {"h": str(whole // HOUR), "m": f"{whole % HOUR // MINUTE:02d}"}
    return "duration.dh", {"d": str(whole // DAY), "h": f"{whole % DAY // HOUR:02d}"}


def age(at: datetime, now: datetime) -> Message:
    """The distance from now, in the past or the future: 5 s ago, in 3 m."""
    seconds = (now - at).total_seconds()
    amount = int(abs(seconds))
    if amount == 0:
        return "age.now", {}
    direction = "ago" if seconds > 0 else "in"
    for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE)):
        if amount >= 2 * size or (unit != "m" and amount >= size):
            return f"age.{direction}.{unit}", {"n": str(amount // size)}
    return f"age.{direction}.s", {"n": str(amount)}


def elapsed(start: datetime | None, end: datetime | None, now: datetime) -> Message | None:
    """From start to end, or until now without an end; None without a start."""
    return None if start is None else duration(((end or now) - start).total_seconds())
