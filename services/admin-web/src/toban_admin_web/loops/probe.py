"""Checks periodically which upstream replicas serve, so that /healthz responds from memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from toban_observability import metrics
from toban_observability.logs import get_logger

TICK_SECONDS = 5.0
# Shorter while a replica is missing, so that /healthz reports its recovery soon.
DEGRADED_TICK_SECONDS = 0.5
CALL_SECONDS = 1.5

_log = get_logger(__name__)
_serving = metrics.gauge(
    "toban_site_upstreams_serving", "Addresses of a service that were serving at the last probe.", ("service",)
)


class Upstream(Protocol):
    """The replicas of one service."""

    @property
    def service(self) -> str:
        """The service's name."""

    @property
    def addresses(self) -> Sequence[str]:
        """host:port of each replica."""

    def serving(self, address: str, *, timeout: float) -> bool:
        """Whether the replica at `address` serves."""


class Probe:
    """Checks every address each TICK_SECONDS (DEGRADED_TICK_SECONDS while one does not serve), in a thread.

    `on_tick` is called at the start of each tick.
    """

    def __init__(self, *, upstreams: Sequence[Upstream], on_tick: Callable[[], None]) -> None:
        self._upstreams = upstreams
        self._on_tick = on_tick
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self._serving: dict[str, tuple[int, int]] = {}

    def serving(self) -> Mapping[str, tuple[int, int]]:
        """Service → (replicas that serve, all replicas) at the last tick; empty before the first tick."""
        return dict(self._serving)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        self._thread.join(CALL_SECONDS)

    def run_once(self) -> None:
        """One tick."""
        self._on_tick()
        for upstream in self._upstreams:
            count = sum(upstream.serving(address, timeout=CALL_SECONDS) for address in upstream.addresses)
            before = self._serving.get(upstream.service)
            self._serving[upstream.service] = (count, len(upstream.addresses))
            _serving.labels(upstream.service).set(count)
            if before is not None and (before[0] == 0) != (count == 0):
                log = _log.info if count else _log.warning
                log("upstream reachability changed", upstream=upstream.service, serving=count)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.run_once()
            except Exception:
                # The next tick is the retry, whatever failed.
                _log.exception("upstream probe failed")
            complete = all(count == known for count, known in self._serving.values())
            self._stopping.wait(TICK_SECONDS if complete else DEGRADED_TICK_SECONDS)
