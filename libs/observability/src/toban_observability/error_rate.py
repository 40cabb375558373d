"""Error rate of this process over the last minutes, computed from its own counters."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from toban_observability import metrics
from toban_observability.health import Check

WINDOW_SECONDS = 300.0
# A warning needs both this fraction and this number of errors: a single failed call must not warn.
WARN_SHARE = 0.05
WARN_ERRORS = 5

SAMPLE_SECONDS = 5.0

IsError = Callable[[Mapping[str, str]], bool]

# Excludes errors caused by the caller.
_OWN_FAULTS = frozenset({"INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"})
OWN_ERRORS: Mapping[str, IsError] = {
    "toban_rpc_total": lambda labels: labels["code"] in _OWN_FAULTS,
    "toban_loop_turns_total": lambda labels: labels["result"] == "error",
}
"""Errors of a process with gRPC and loops: counter → which of its label sets are errors."""


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    errors: float
    total: float


class ErrorRate:
    """Call `sample` about every SAMPLE_SECONDS and `check` at any time. Times are in seconds of a monotonic clock.

    `counters` maps each counter (`toban_..._total`) to a predicate: which of its label sets are errors.
    """

    def __init__(self, counters: Mapping[str, IsError] = OWN_ERRORS, *, window_seconds: float = WINDOW_SECONDS) -> None:
        self._counters = counters
        self._window = window_seconds
        self._samples: deque[_Sample] = deque()

    def sample(self, now: float) -> None:
        """Records the current values of the counters."""
        errors = total = 0.0
        for name, is_error in self._counters.items():
            for labels, value in metrics.samples(name):
                total += value
                errors += value if is_error(labels) else 0.0
        self._samples.append(_Sample(now, errors, total))
        # Keeps the newest sample that is at least as old as the window: the baseline of `check`.
        while len(self._samples) > 1 and self._samples[1].at <= now - self._window:
            self._samples.popleft()

    def check(self) -> Check:
        """Errors of all calls and turns within the window; a warning above WARN_SHARE and WARN_ERRORS."""
        if not self._samples:
            return Check("ok", {"rate": 0.0, "errors": 0, "of": 0})
        first, last = self._samples[0], self._samples[-1]
        errors, total = int(last.errors - first.errors), int(last.total - first.total)
        rate = errors / total if total else 0.0
        warns = errors >= WARN_ERRORS and rate >= WARN_SHARE
        return Check("warning" if warns else "ok", {"rate": round(rate, 4), "errors": errors, "of": total})
