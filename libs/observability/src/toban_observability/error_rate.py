"""Error rate of this process over the last minutes, from its own counters. Nothing is stored, no other process is called."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from toban_observability import metrics
from toban_observability.health import Check

WINDOW_SECONDS = 300.0
# A warning needs this share of errors, and this many of them: one error of one call says nothing.
WARN_SHARE = 0.05
WARN_ERRORS = 5

SAMPLE_SECONDS = 5.0

IsError = Callable[[Mapping[str, str]], bool]

# Not the mistakes of callers.
_OWN_FAULTS = frozenset({"INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"})
OWN_ERRORS: Mapping[str, IsError] = {
    "toban_rpc_total": lambda labels: labels["code"] in _OWN_FAULTS,
    "toban_loop_turns_total": lambda labels: labels["result"] == "error",
}
"""What counts as an error of a process with gRPC and loops in its own health."""


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    errors: float
    total: float


class ErrorRate:
    """`sample` each SAMPLE_SECONDS or so, `check` at any time. Times are one monotonic clock's, seconds.

    `counters` names each counter (`toban_..._total`) and says which of its labels are errors.
    """

    def __init__(self, counters: Mapping[str, IsError] = OWN_ERRORS, *, window_seconds: float = WINDOW_SECONDS) -> None:
        self._counters = counters
        self._window = window_seconds
        self._samples: deque[_Sample] = deque()

    def sample(self, now: float) -> None:
        """Remember where the counters stand."""
        errors = total = 0.0
        for name, is_error in self._counters.items():
            for labels, value in metrics.samples(name):
                total += value
                errors += value if is_error(labels) else 0.0
        self._samples.append(_Sample(now, errors, total))
        # The newest one that is as old as the window stays: what came since is counted from it.
        while len(self._samples) > 1 and self._samples[1].at <= now - self._window:
            self._samples.popleft()

    def check(self) -> Check:
        """Errors of all calls and turns within the window; a warning when many of them failed."""
        if not self._samples:
            return Check("ok", {"rate": 0.0, "errors": 0, "of": 0})
        first, last = self._samples[0], self._samples[-1]
        errors, total = int(last.errors - first.errors), int(last.total - first.total)
        rate = errors / total if total else 0.0
        warns = errors >= WARN_ERRORS and rate >= WARN_SHARE
        return Check("warning" if warns else "ok", {"rate": round(rate, 4), "errors": errors, "of": total})
