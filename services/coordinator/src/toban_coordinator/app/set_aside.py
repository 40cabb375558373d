"""Runs that PostgreSQL refuses to move, or works on for too long: each is left out for a while, so that it holds up no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from toban_coordinator.app import metrics
from toban_coordinator.app.adaptive_batch import ALONE_STRIKES
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
        # How often PostgreSQL was at work for too long on one run alone.
        self._slow: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, run_id: int) -> bool:
        return run_id in self._until

    def expire(self) -> None:
        """Runs whose time is over are looked at again."""
        at = self._clock.monotonic()
        self._until = {run: until for run, until in self._until.items() if until > at}

    def keep_slow(self, due: Iterable[int]) -> None:
        """What is due no longer, for whatever reason, was not slow several times in a row."""
        if self._slow:
            self._slow &= Counter({run: ALONE_STRIKES for run in due if run not in self._until})

    def moved(self, runs: Iterable[int]) -> None:
        """Runs that were moved are not slow."""
        for run in runs:
            self._slow.pop(run, None)

    def note_slow(self, run_id: int, error: TooLong) -> None:
        """One run alone took too long: it is set aside when PostgreSQL was at work on it for so long several times in a row."""
        self._slow[run_id] += error.by_server
        if self._slow[run_id] >= ALONE_STRIKES:
            del self._slow[run_id]
            self.put(run_id, error)

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
