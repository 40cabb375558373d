"""Limits the requests of one credential, or of one address without one, at this process; answers name what is left."""

from __future__ import annotations

import threading
from collections import OrderedDict
from hashlib import sha256

from flask import Response, g

from toban_admin_web.decide.rate_limit import Bucket, RateVerdict, take
from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_runtime.clock import Clock

KEPT = 10_000

_refused = metrics.counter("toban_api_requests_throttled_total", "Requests of the API refused because of their rate.")


class RequestRate:
    """Safe for threads. `per_minute` 0 = no limit."""

    def __init__(self, *, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[bytes, Bucket] = OrderedDict()

    def count(self, who: str) -> None:
        """Counts a request of `who`, a secret or an address. Raises RESOURCE_EXHAUSTED with `retry_after_seconds`."""
        if not self._per_minute:
            return
        with self._lock:
            bucket, verdict = take(self._buckets.get(_key(who)), self._clock.monotonic(), per_minute=self._per_minute)
            self._keep(_key(who), bucket)
        self._decide(verdict)

    def admit(self, secret: str, address: str) -> bool:
        """Before a coordinator is asked whose secret it is: whether it was good before. Another one counts for its address.

        Raises as `count`, also for a secret that was good and has nothing left.
        """
        with self._lock:
            bucket = self._buckets.get(_key(secret))
        if bucket is None:
            self.count(address)
            return False
        _, verdict = take(bucket, self._clock.monotonic(), per_minute=self._per_minute)
        if not verdict.allowed:
            self._decide(verdict)
        return True

    def accept(self, secret: str, address: str, *, known: bool) -> None:
        """The secret is good: its request counts for it, not for its address. Raises as `count`."""
        if not known and self._per_minute:
            with self._lock:
                bucket = self._buckets.get(_key(address))
                if bucket is not None:
                    self._keep(_key(address), Bucket(bucket.left + 1, bucket.at))
        self.count(secret)

    def reject(self, secret: str, address: str, *, known: bool) -> None:
        """The secret is not valid. Raises as `count`."""
        if known:
            with self._lock:
                self._buckets.pop(_key(secret), None)
            self.count(address)

    def _keep(self, key: bytes, bucket: Bucket) -> None:
        self._buckets[key] = bucket
        self._buckets.move_to_end(key)
        if len(self._buckets) > KEPT:
            self._buckets.popitem(last=False)

    def _decide(self, verdict: RateVerdict) -> None:
        g.rate = verdict
        if not verdict.allowed:
            _refused.inc()
            message = (
                f"more than {self._per_minute} requests a minute (SCHEDULER_API_RATE); "
                f"wait {verdict.retry_seconds} s, or ask for more at once"
            )
            raise TobanError(
                ErrorCode.RESOURCE_EXHAUSTED, message, detail={"retry_after_seconds": verdict.retry_seconds}
            )


def _key(who: str) -> bytes:
    return sha256(who.encode()).digest()


def add_headers(response: Response) -> Response:
    """How many requests are left, on every answer of a limited request."""
    verdict: RateVerdict | None = g.get("rate")
    if verdict is not None:
        response.headers["RateLimit-Limit"] = str(verdict.limit)
        response.headers["RateLimit-Remaining"] = str(verdict.remaining)
        response.headers["RateLimit-Reset"] = str(verdict.reset_seconds)
    return response
