"""Bounds sign-ins with the OpenID provider at this process: they need no account, and a provider that does not respond holds threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from toban_admin_web.decide.rate_limit import Bucket, take
from toban_domain.client_address import network_of
from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_runtime.clock import Clock

PER_MINUTE = 240
"""Steps of one address a minute; a sign-in has two. A tenth of a minute's comes at once: an office has one address."""
IN_ALL_PER_MINUTE = 3000
KEPT = 10_000
"""Addresses that are counted; the one that was away longest is forgotten first."""

_refused = metrics.counter(
    "toban_site_oidc_refused_total",
    "Steps of sign-ins with the OpenID provider that the site refused: rate (too many of one address or in all), busy (too many wait for the "
    "provider).",
    ("reason",),
)


class OidcLimits:
    """Safe for threads. At most `at_once` steps of sign-ins are under way."""

    def __init__(self, *, clock: Clock, at_once: int) -> None:
        self._clock = clock
        self._at_once = at_once
        self._free = threading.BoundedSemaphore(at_once)
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._in_all: Bucket | None = None

    @contextmanager
    def step(self, address: str) -> Iterator[None]:
        """Around one step. Raises RESOURCE_EXHAUSTED with `retry_after_seconds` and `rate`, PROVIDER_UNAVAILABLE while others wait."""
        self._count(network_of(address))
        if not self._free.acquire(blocking=False):
            _refused.labels("busy").inc()
            message = f"{self._at_once} sign-ins wait for a response already; try again in some seconds"
            raise TobanError(ErrorCode.PROVIDER_UNAVAILABLE, message)
        try:
            yield
        finally:
            self._free.release()

    def _count(self, network: str) -> None:
        with self._lock:
            now = self._clock.monotonic()
            bucket, verdict = take(self._buckets.get(network), now, per_minute=PER_MINUTE)
            self._buckets[network] = bucket
            self._buckets.move_to_end(network)
            if len(self._buckets) > KEPT:
                self._buckets.popitem(last=False)
            if verdict.allowed:
                # Not for one that is refused: one address cannot use up what is for all.
                self._in_all, verdict = take(self._in_all, now, per_minute=IN_ALL_PER_MINUTE)
        if not verdict.allowed:
            _refused.labels("rate").inc()
            message = f"too many sign-ins are started; try again in {verdict.retry_seconds} s"
            detail = {"retry_after_seconds": verdict.retry_seconds, "rate": True}
            raise TobanError(ErrorCode.RESOURCE_EXHAUSTED, message, detail=detail)
