"""Runs that PostgreSQL refuses to move, or works on for too long: each is left out for a while, so that it holds up no other."""

from __future__ import annotations

from toban_coordinator.app import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_store.errors import Refused, TooLong

# How long a run is left out that PostgreSQL refuses to move, and one that alone takes too long, seconds.
REFUSED_SECONDS = 30.0
SLOW_SECONDS = 2.0

_log = get_logger(__name__)


class SetAside:
    """Those of one term, by the monotonic clock."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, run_id: int) -> bool:
        return run_id in self._until

    def expire(self) -> None:
        """Runs whose time is over are looked at again."""
        at = self._clock.monotonic()
        self._until = {run: until for run, until in self._until.items() if until > at}

    def put(self, run_id: int, error: Refused | TooLong) -> None:
        """The one run that cannot be moved waits."""
        kind, seconds = ("slow", SLOW_SECONDS) if isinstance(error, TooLong) else ("refused", REFUSED_SECONDS)
        metrics.set_aside.labels(kind).inc()
        _log.error(
            "run cannot be placed; set aside",
            run_id=run_id,
            error=error.message,
            sqlstate=error.sqlstate,
            next_try_seconds=seconds,
        )
        self._until[run_id] = self._clock.monotonic() + seconds
