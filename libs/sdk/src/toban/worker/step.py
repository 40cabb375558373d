"""A claimed step as its function sees it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from toban.errors import ConflictError, TobanError
from toban.worker.output import STREAMS, StepOutput
from toban.worker.site import Key, WorkSite, key_of

_log = logging.getLogger("toban.worker")
_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Seconds of a clock that no step moves, and that counts while the machine is suspended."""
    # Elsewhere than on Linux the monotonic clock counts on by itself.
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


class StepStoppedError(Exception):
    """The work must end: the run is being cancelled, or the claim is lost. Raised by `Step.check`; let it through."""


class StepFailedError(Exception):
    """Raise it to end a step as failed; `retryable=False`: no retry will help."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class Step:
    """What a task gets. `payload` is that of the run, `previous_result` that of the last external step before this one.

    `fence` is the fencing token: it grows over all attempts of all runs, so a resource can refuse an older one (`toban.fencing`).
    """

    def __init__(self, found: Mapping[str, Any], site: WorkSite, sent: float) -> None:
        self.key: Key = key_of(found["key"])
        self.run_id, self.fence = self.key[0], int(self.key[1])
        self.job, self.step_id, self.attempt = str(found["job"]), str(found["step_id"]), int(found["attempt"])
        self.payload: Any = found["payload"]
        self.previous_result: Any = found["previous_result"]
        self.raw = found
        self._site = site
        self.lock_seconds: float = found["lock_ttl_ms"] / 1000
        self.timeout_seconds: float = found["timeout_ms"] / 1000 or float("inf")
        self._hold: float = (found["lock_ttl_ms"] - found["lock_margin_ms"]) / 1000
        self._until: float = sent + self._hold
        self._last: float = sent + self.timeout_seconds
        self._cancelled = False
        self._lock = threading.Lock()
        self.output = StepOutput(self.key, site, self.cancel)

    @property
    def remaining_seconds(self) -> float:
        """How long the claim still holds, seconds; 0 = another worker may have the step. It stays 0."""
        with self._lock:
            return self._remaining()

    @property
    def is_lost(self) -> bool:
        """Whether another worker may have the step by now."""
        return self.remaining_seconds == 0.0

    def cancelled(self) -> bool:
        """Whether the run is being cancelled."""
        return self._cancelled

    def check(self) -> None:
        """Raises StepStoppedError when the work must end. Call it often, and before anything that others see."""
        if self._cancelled:
            raise StepStoppedError(f"run {self.run_id} is being cancelled")
        if self.is_lost:
            raise StepStoppedError(f"the claim of run {self.run_id} is lost")

    def progress(self, percentage: float, summary: str = "") -> None:
        """Shows how far the step is (0 to 100). An unreachable site is no error. Raises StepStoppedError as `check` does."""
        if not 0 <= percentage <= 100:
            raise ValueError(f"{percentage:g} is no percentage; it goes from 0 to 100")
        self.check()
        try:
            self._cancelled = self._site.report(self.key, int(percentage), summary[:1000]) or self._cancelled
        except ConflictError as error:
            if error.code == "CLAIM_LOST":
                self.lose()
        except TobanError as error:
            _log.warning("progress of run %d is not shown: %s", self.run_id, error)
        self.check()

    def log(self, text: str, *, stream: str = "stdout") -> None:
        """Writes lines into the log of the run, at the end of "stdout" or "stderr". It does not wait, and an unreachable site is no error."""
        if stream not in STREAMS:
            raise ValueError(f"{stream!r} is no stream of the log; use 'stdout' or 'stderr'")
        self.output.write(f"{text}\n", stream)

    def confirm(self, sent: float) -> None:
        """A heartbeat of this time was answered, before the work has begun: until then nothing relies on the claim."""
        with self._lock:
            self._until = sent + self._hold

    def extend(self, sent: float) -> None:
        """A heartbeat of this time was answered. One that is answered too late does not bring a lost claim back."""
        with self._lock:
            if self._remaining():
                self._until = max(self._until, sent + self._hold)

    def lose(self) -> None:
        """A heartbeat has named the claim as lost."""
        with self._lock:
            self._until = 0.0

    def cancel(self) -> None:
        """A heartbeat has named the run as cancelled."""
        self._cancelled = True

    def _remaining(self) -> float:
        left = max(0.0, min(self._until, self._last) - now())
        if not left:
            self._until = 0.0
        return left
