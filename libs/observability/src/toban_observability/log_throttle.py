"""Throttles log messages that would repeat, such as those of libraries while a server is unreachable."""

import logging
from collections.abc import Hashable

INTERVAL_SECONDS = 30.0
# Bounds the memory: a library has a handful of messages, about a handful of subjects each.
MAX_KEYS = 200


class LogThrottle:
    """Admits each key at most once per INTERVAL_SECONDS, and counts what it suppresses."""

    def __init__(self) -> None:
        # Key → when it was admitted last, and how often it was suppressed since.
        self._admitted: dict[Hashable, tuple[float, int]] = {}

    def admit(self, key: Hashable, now: float) -> int | None:
        """How often `key` was suppressed since it was admitted last; None when it is suppressed now.

        `now` is in seconds, always of the same clock.
        """
        at, suppressed = self._admitted.get(key, (None, 0))
        # A clock that was set back must not suppress messages for longer.
        if at is not None and 0 <= now - at < INTERVAL_SECONDS:
            self._admitted[key] = at, suppressed + 1
            return None
        if len(self._admitted) >= MAX_KEYS:
            self._admitted.clear()
        self._admitted[key] = now, 0
        return suppressed


class ThrottleFilter(logging.Filter):
    """Throttles a library's records by message template and subject (its first argument, such as the name of a pool).

    A record that passes states how many similar ones were suppressed before it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._throttle = LogThrottle()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged."""
        subject = record.args[0] if isinstance(record.args, tuple) and record.args else ""
        suppressed = self._throttle.admit((str(record.msg), str(subject)), record.created)
        if suppressed:
            record.msg = f"{record.msg} ({suppressed} similar messages suppressed)"
        return suppressed is not None
