"""How much the connection pools of this process are used: read from the pools at each scrape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from toban_observability import metrics

_connections = metrics.gauge(
    "toban_pool_connections", "Connections to PostgreSQL by pool: idle, used, and most (the limit).", ("pool", "state")
)
_waiting = metrics.gauge("toban_pool_waiting", "Callers that wait for a connection.", ("pool",))
_requests = metrics.counter("toban_pool_requests_total", "Connections asked for.", ("pool",))
_waits = metrics.counter("toban_pool_wait_seconds_total", "Time that callers have waited for a connection.", ("pool",))
_errors = metrics.counter(
    "toban_pool_errors_total", "Failures by kind: wait (none in time), connect (no new one), lost.", ("pool", "kind")
)

_KINDS = {"wait": "requests_errors", "connect": "connections_errors", "lost": "connections_lost"}


class Measured(Protocol):
    """A pool that knows its figures."""

    name: str

    @property
    def max_size(self) -> int:
        """How many connections it may open."""

    def get_stats(self) -> Mapping[str, Any]:
        """Figures since it was opened; a missing one is 0."""


_pools: WeakKeyDictionary[Measured, dict[str, float]] = WeakKeyDictionary()


def watch(pool: Measured) -> None:
    """Show this pool for as long as it lives."""
    _pools[pool] = {}


def tell() -> None:
    """Bring the metrics up to date."""
    for pool, seen in tuple(_pools.items()):
        stats = pool.get_stats()
        name, idle = pool.name.removeprefix("toban/"), stats.get("pool_available", 0)
        _connections.labels(name, "idle").set(idle)
        _connections.labels(name, "used").set(max(0, stats.get("pool_size", 0) - idle))
        _connections.labels(name, "most").set(pool.max_size)
        _waiting.labels(name).set(stats.get("requests_waiting", 0))
        _requests.labels(name).inc(_grown(seen, stats, "requests_num"))
        _waits.labels(name).inc(_grown(seen, stats, "requests_wait_ms") / 1000)
        for kind, figure in _KINDS.items():
            _errors.labels(name, kind).inc(_grown(seen, stats, figure))


def _grown(seen: dict[str, float], stats: Mapping[str, Any], figure: str) -> float:
    value = float(stats.get(figure, 0))
    before, seen[figure] = seen.get(figure, 0.0), value
    return max(0.0, value - before)


metrics.on_scrape(tell)
