"""Times, durations, sizes, counts and states as text. Loads nothing else, so that every command may import it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from google.protobuf.timestamp_pb2 import Timestamp

NOTHING = "-"
STATE_STYLES = {
    "SUCCEEDED": "green",
    "ok": "green",
    "on": "green",
    "active": "green",
    "leader": "bold",
    "FAILED": "red",
    "TIMED_OUT": "red",
    "EXPIRED": "red",
    "lost": "red",
    "failed": "red",
    "error": "red",
    "off": "red",
    "cut": "red",
    "RUNNING": "cyan",
    "ASSIGNED": "cyan",
    "CANCEL_REQUESTED": "yellow",
    "CANCELED": "yellow",
    "SKIPPED": "yellow",
    "ORPHANED": "yellow",
    "draining": "yellow",
    "detached": "yellow",
    "warning": "yellow",
    "stopped": "yellow",
}
# Keys that this command generated because the caller gave none.
_OWN_KEY = re.compile(r"cli-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def wall_now() -> datetime:
    """This machine's time (UTC)."""
    from toban_runtime.clock import SystemClock

    return SystemClock().wall()


def to_time(stamp: Timestamp) -> datetime | None:
    """The time (UTC), None when it is not set."""
    from toban_transport.convert import timestamp_from_pb

    return timestamp_from_pb(stamp)


def duration(seconds: float) -> str:
    """0.42s, 5.0s, 3m 12s, 2h 05m, 3d 04h."""
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.2f}s" if seconds < 1 else f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m" if hours < 48 else f"{hours // 24}d {hours % 24:02d}h"


def size(count: float) -> str:
    """Bytes with a unit: 512 B, 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def age(stamp: Timestamp, now: datetime) -> str:
    """How long ago or how far ahead: "5s ago", "in 3m"."""
    at = to_time(stamp)
    if at is None:
        return NOTHING
    seconds = (now - at).total_seconds()
    words = _rough(abs(seconds))
    if words == "0s":
        return "now"
    return f"{words} ago" if seconds > 0 else f"in {words}"


def local(stamp: Timestamp, now: datetime) -> str:
    """Local time with its age: "2026-11-21 12:03:05 (5s ago)"."""
    at = to_time(stamp)
    return NOTHING if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S} ({age(stamp, now)})"


def brief(stamp: Timestamp, now: datetime) -> str:
    """As `local`, for tables: the time alone for today, date and minute for other days."""
    at = to_time(stamp)
    if at is None:
        return NOTHING
    today = at.astimezone().date() == now.astimezone().date()
    return f"{at.astimezone():{'%H:%M:%S' if today else '%m-%d %H:%M'}} ({age(stamp, now)})"


def moment(stamp: Timestamp, now: datetime) -> str:
    """As `local` without the age, and without the day when it is today."""
    at = to_time(stamp)
    if at is None:
        return NOTHING
    today = at.astimezone().date() == now.astimezone().date()
    return f"{at.astimezone():{'%H:%M:%S' if today else '%Y-%m-%d %H:%M:%S'}}"


def day(stamp: Timestamp, now: datetime) -> str:
    """The day with its age: "2036-11-18 (in 3649d)"."""
    at = to_time(stamp)
    return NOTHING if at is None else f"{at.astimezone():%Y-%m-%d} ({age(stamp, now)})"


def took(start: Timestamp, end: Timestamp, now: datetime) -> str:
    """From start to end, or until now when it has not ended."""
    begun, ended = to_time(start), to_time(end)
    return NOTHING if begun is None else duration(((ended or now) - begun).total_seconds())


def count(number: int, what: str) -> str:
    """1 run, 2 runs."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def plain_number(number: float) -> str:
    """Whole numbers with all their digits, others as they are written."""
    return str(int(number)) if abs(number) < 1e18 and number == int(number) else f"{number:g}"


def given_key(key: str) -> str:
    """The key of a run or an event, "" when it is one that this command made up."""
    return "" if _OWN_KEY.fullmatch(key) else key


def _rough(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size or (size > 60 and seconds >= size):
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"
