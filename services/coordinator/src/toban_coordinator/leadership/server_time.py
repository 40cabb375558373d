"""PostgreSQL's clock between two answers: interpolated by this machine's monotonic clock."""

from __future__ import annotations

from datetime import datetime, timedelta

from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_runtime.clock import Clock

_skew = metrics.gauge("toban_clock_skew_seconds", "Wall clock of this machine minus that of PostgreSQL.")


class ServerTime:
    """Feed it with each answer that carries `clock_timestamp()`; between them it counts on. Never goes back by more than PostgreSQL did."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._at: tuple[datetime, float] | None = None
        self.skew_seconds = 0.0

    def feed(self, server_time: datetime, *, sent_at: float, returned_at: float) -> None:
        """PostgreSQL said `server_time` between these two readings of the monotonic clock; the middle is taken."""
        middle = (sent_at + returned_at) / 2
        self._at = (server_time, middle)
        elapsed = self._clock.monotonic() - middle
        self.skew_seconds = (self._clock.wall() - server_time).total_seconds() - elapsed
        _skew.set(self.skew_seconds)

    @property
    def age_seconds(self) -> float | None:
        """How long ago PostgreSQL last answered; None before the first answer."""
        return None if self._at is None else self._clock.monotonic() - self._at[1]

    def now(self) -> datetime:
        """PostgreSQL's time in UTC. Raises TobanError UNAVAILABLE before the first answer."""
        if self._at is None:
            raise TobanError(ErrorCode.UNAVAILABLE, "PostgreSQL's clock has not been read yet")
        server_time, middle = self._at
        return server_time + timedelta(seconds=self._clock.monotonic() - middle)
