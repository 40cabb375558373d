"""How many requests one credential or address may make: a bucket of BURST_SECONDS' worth that fills evenly."""

from __future__ import annotations

import math
from dataclasses import dataclass

BURST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """Requests that are left at a time (seconds of a monotonic clock)."""

    left: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RateVerdict:
    """`remaining` requests of `limit` can come at once; `reset_seconds` until all of them can."""

    allowed: bool
    limit: int
    remaining: int
    reset_seconds: int
    retry_seconds: int
    """Until the next request; 0 when this one is allowed."""


def take(bucket: Bucket | None, now: float, *, per_minute: int) -> tuple[Bucket, RateVerdict]:
    """The bucket after a request at `now`, and whether it is allowed. None is a full one."""
    a_second = per_minute / 60
    size = max(1, int(a_second * BURST_SECONDS))
    left = float(size) if bucket is None else min(size, bucket.left + max(0.0, now - bucket.at) * a_second)
    allowed = left >= 1
    left -= 1 if allowed else 0
    verdict = RateVerdict(
        allowed=allowed,
        limit=size,
        remaining=int(left),
        reset_seconds=math.ceil((size - left) / a_second),
        retry_seconds=0 if allowed else max(1, math.ceil((1 - left) / a_second)),
    )
    return Bucket(left, now), verdict
