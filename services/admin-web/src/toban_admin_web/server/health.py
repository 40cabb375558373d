"""What /healthz of admin-web says, from memory. Without coordinators it still serves: it says so on its pages, so that is a warning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toban_admin_web.views.site import Places
from toban_observability.health import Check, report
from toban_runtime.clock import Clock
from toban_transport.tls import TlsFiles
from toban_transport.tls_reload import certificate_check

Seen = Callable[[], Mapping[str, tuple[int, int]]]
"""Service → (how many of its addresses serve, how many there are)."""


class Health:
    """Looks at what the others last said, at the places for logs, and at our certificate."""

    def __init__(self, *, seen: Seen, places: Places, tls: TlsFiles, clock: Clock, errors: Callable[[], Check]) -> None:
        self._errors = errors
        self._seen = seen
        self._places = places
        self._tls = tls
        self._clock = clock

    def document(self) -> dict[str, Any]:
        """The JSON document of /healthz."""
        taken, size = self._places.taken, self._places.size
        upstreams = {service: _upstream(good, known) for service, (good, known) in self._seen().items()}
        return report(
            {
                **upstreams,
                "errors_5_minutes": self._errors(),
                "live_logs": Check("ok" if taken < size else "warning", f"{taken} of {size}"),
                "certificate": certificate_check(self._tls, self._clock.wall()),
            }
        )


def _upstream(good: int, known: int) -> Check:
    return Check("ok" if good == known and known else "warning", f"{good} of {known} serve")
