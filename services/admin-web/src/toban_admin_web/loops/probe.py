"""Looks regularly who of the others serves, so that /healthz answers from memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from toban_observability import metrics
from toban_observability.logs import get_logger

TICK_SECONDS = 5.0
# While somebody is missing the look is closer, so that health is green soon after it is true.
CLOSE_TICK_SECONDS = 0.5
CALL_SECONDS = 1.5

_log = get_logger(__name__)
_serving = metrics.gauge(
    "toban_site_upstreams_serving", "Addresses of a service that serve, as last seen.", ("service",)
)


class Upstream(Protocol):
    """The replicas of one service."""

    @property
    def service(self) -> str:
        """Its name."""

    @property
    def addresses(self) -> Sequence[str]:
        """host:port of each."""

    def serving(self, address: str, *, timeout: float) -> bool:
        """Whether one of them serves."""


class Probe:
    """Asks every address each TICK_SECONDS (CLOSE_TICK_SECONDS while one does not serve), in a thread of its own.

    `beside` is called with each look.
    """

    def __init__(self, *, upstreams: Sequence[Upstream], beside: Callable[[], None]) -> None:
        self._upstreams = upstreams
        self._beside = beside
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self._seen: dict[str, tuple[int, int]] = {}

    def seen(self) -> Mapping[str, tuple[int, int]]:
        """Service → (how many serve, how many there are), as last seen; empty before the first look."""
        return dict(self._seen)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join(CALL_SECONDS)

    def run_once(self) -> None:
        """Look once."""
        self._beside()
        for upstream in self._upstreams:
            good = sum(upstream.serving(address, timeout=CALL_SECONDS) for address in upstream.addresses)
            before = self._seen.get(upstream.service)
            self._seen[upstream.service] = (good, len(upstream.addresses))
            _serving.labels(upstream.service).set(good)
            if before is not None and (before[0] == 0) != (good == 0):
                tell = _log.info if good else _log.warning
                tell("reachability changed", upstream=upstream.service, serving=good)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.run_once()
            except Exception:
                # Whatever it is, the next look is the retry.
                _log.exception("probe failed")
            whole = all(good == known for good, known in self._seen.values())
            self._stopping.wait(TICK_SECONDS if whole else CLOSE_TICK_SECONDS)
