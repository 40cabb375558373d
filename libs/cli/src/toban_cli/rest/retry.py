"""When a request that the site did not take now is sent again: what its answer asks for, within the retry budget of the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from threading import Event

# A command that waits for nothing waits this long for a site that allows no request now, seconds.
SHORT_SECONDS = 3.0
# A command that waits for a run does without the site for this long, seconds: a restart and a fail-over are much shorter.
OUTAGE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 2.0
# Too many requests; then what a site or a proxy has that restarts, or that has no coordinator now.
BUSY = frozenset({429, 502, 503, 504})
Sleep = Callable[[float], object]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of the header Retry-After, which is a number or a date; None without it. Names of headers are in lower case."""
    given = headers.get("retry-after", "").strip()
    if given.isascii() and given.isdigit():
        return float(given[:9])
    until, now = _date(given), _date(headers.get("date", ""))
    # The clock of this machine may differ from that of the site.
    return max(0.0, (until - now).total_seconds()) if until and now else None


@dataclass(slots=True, kw_only=True)
class RetryBudget:
    """How long one request may wait for its turn, seconds. `for_outage`: also for a site that is away."""

    seconds: float = SHORT_SECONDS
    for_outage: bool = False
    sleep: Sleep = field(default_factory=lambda: Event().wait)
    _waited: float = 0.0
    _pause: float = _FIRST_PAUSE_SECONDS

    def await_turn(self, status: int, headers: Mapping[str, str]) -> bool:
        """After an answer: waits as the site asks, and whether the request makes sense again."""
        if status not in BUSY:
            return False
        asked = retry_after(headers)
        if asked is None:
            return self.for_outage and self._wait(self._next_pause())
        # Not at once, whatever the site says: it would be asked without an end.
        return self._wait(max(asked, _FIRST_PAUSE_SECONDS))

    def await_site(self, lost_seconds: float = 0.0) -> bool:
        """After a connection that failed, for which `lost_seconds` were waited: whether the request makes sense again."""
        self._waited += lost_seconds
        return self.for_outage and self._wait(self._next_pause())

    def _next_pause(self) -> float:
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        return pause

    def _wait(self, seconds: float) -> bool:
        if self._waited + seconds > self.seconds:
            return False
        self._waited += seconds
        self.sleep(seconds)
        return True


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    return found if found.tzinfo is not None else None
