"""Retries: their number, and the delay before each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FAILED_STEP = "failed_step"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialBackoff:
    """initial × multiplier^(n-1) seconds, at most `maximum`, randomised by ± `jitter` (a fraction of the delay, 0 … 1)."""

    initial: float = 1.0
    multiplier: float = 2.0
    maximum: float = 3600.0
    jitter: float = 0.0

    def delay(self, retry: int, spread: float) -> float:
        """Seconds before retry number `retry` (1 = the first)."""
        # Floats overflow beyond 2^1000; `maximum` is reached long before.
        factor = self.multiplier ** min(retry - 1, 300)
        return max(0.0, min(self.initial * factor, self.maximum) * (1 + self.jitter * (2 * spread - 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySpec:
    """FAILED and TIMED_OUT use up a retry; losing an executor does not. `backoff` is a list of seconds (the last one repeats) or a rule.

    A retry begins with the first step, or with the step that failed: `from_step` is "" or FAILED_STEP."""

    max_retries: int = 0
    backoff: tuple[float, ...] | ExponentialBackoff = ()
    from_step: str = ""

    @property
    def max_attempts(self) -> int:
        """The first attempt plus the retries."""
        return self.max_retries + 1

    def delay_seconds(self, retry: int, *, spread: float = 0.5) -> float:
        """Seconds before retry number `retry` (1 = the first); `spread` in 0 … 1 picks the place within the jitter."""
        if isinstance(self.backoff, ExponentialBackoff):
            return self.backoff.delay(retry, spread)
        return self.backoff[min(retry, len(self.backoff)) - 1] if self.backoff else 0.0

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest; default values are omitted."""
        out: dict[str, Any] = {"max_retries": self.max_retries} if self.max_retries else {}
        if isinstance(self.backoff, ExponentialBackoff):
            rule = self.backoff
            out["backoff_seconds"] = {
                "initial": rule.initial,
                "multiplier": rule.multiplier,
                "max": rule.maximum,
                "jitter": rule.jitter,
            }
        elif self.backoff:
            out["backoff_seconds"] = list(self.backoff)
        if self.from_step:
            out["from"] = self.from_step
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RetrySpec:
        """The inverse of to_json."""
        given = data.get("backoff_seconds", ())
        backoff: tuple[float, ...] | ExponentialBackoff
        if isinstance(given, Mapping):
            backoff = ExponentialBackoff(
                initial=float(given["initial"]),
                multiplier=float(given["multiplier"]),
                maximum=float(given["max"]),
                jitter=float(given["jitter"]),
            )
        else:
            backoff = tuple(float(seconds) for seconds in given)
        return cls(max_retries=int(data.get("max_retries", 0)), backoff=backoff, from_step=data.get("from", ""))
