"""Limits the requests of one person, or of one address without one, at this process; answers name what is left."""

from __future__ import annotations

import threading
from collections import OrderedDict
from hashlib import sha256
from typing import TypeVar

from flask import Response, g

from toban_admin_web.decide.rate_limit import Bucket, RateVerdict, take
from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_runtime.clock import Clock

KEPT = 10_000
K = TypeVar("K")
V = TypeVar("V")

_refused = metrics.counter("toban_api_requests_throttled_total", "Requests of the API refused because of their rate.")


class RequestRate:
    """Safe for threads. `per_minute` 0 = no limit."""

    def __init__(self, *, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        # Hash of a secret that was good: whose it is. All secrets of a person have one rate.
        self._people: OrderedDict[bytes, str] = OrderedDict()

    def count(self, who: str) -> None:
        """Counts a request of `who`, a person or an address. Raises RESOURCE_EXHAUSTED with `retry_after_seconds`."""
        if not self._per_minute:
            return
        with self._lock:
            bucket, verdict = take(self._buckets.get(who), self._clock.monotonic(), per_minute=self._per_minute)
            self._keep(who, bucket)
        self._decide(verdict)

    def admit(self, secret: str, address: str) -> bool:
        """Before a coordinator is asked whose secret it is: whether it was good before. Another one counts for its address.

        Raises as `count`, also for a secret that was good and whose person has nothing left.
        """
        with self._lock:
            person = self._people.get(_key(secret))
            bucket = None if person is None else self._buckets.get(person)
        if bucket is None:
            self.count(address)
            return False
        _, verdict = take(bucket, self._clock.monotonic(), per_minute=self._per_minute)
        if not verdict.allowed:
            self._decide(verdict)
        return True

    def accept(self, secret: str, address: str, user: str, *, known: bool) -> None:
        """The secret is good: its request counts for its user, not for its address. Raises as `count`."""
        person = f"user {user}"
        with self._lock:
            bucket = None if known else self._buckets.get(address)
            if bucket is not None:
                self._keep(address, Bucket(bucket.left + 1, bucket.at))
            _put(self._people, _key(secret), person)
        self.count(person)

    def reject(self, secret: str, address: str, *, known: bool) -> None:
        """The secret is not valid. Raises as `count`."""
        if known:
            with self._lock:
                self._people.pop(_key(secret), None)
            self.count(address)

    def _keep(self, who: str, bucket: Bucket) -> None:
        _put(self._buckets, who, bucket)

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


def _put(kept: OrderedDict[K, V], key: K, value: V) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > KEPT:
        kept.popitem(last=False)


def _key(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def add_headers(response: Response) -> Response:
    """How many requests are left, on every answer of a limited request."""
    verdict: RateVerdict | None = g.get("rate")
    if verdict is not None:
        response.headers["RateLimit-Limit"] = str(verdict.limit)
        response.headers["RateLimit-Remaining"] = str(verdict.remaining)
        response.headers["RateLimit-Reset"] = str(verdict.reset_seconds)
    return response
