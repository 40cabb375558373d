"""The /healthz document of admin-web. Missing coordinators are a warning: the site still serves and reports them on its pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toban_observability.health import Check, report
from toban_runtime.clock import Clock
from toban_transport.tls import TlsFiles
from toban_transport.tls_reload import certificate_check


class Health:
    """Checks of upstream replicas, log streams, recent errors and the certificate.

    `upstreams` gives service → (replicas that serve, all replicas); `streams` gives (stream slots in use, all slots).
    """

    def __init__(
        self,
        *,
        upstreams: Callable[[], Mapping[str, tuple[int, int]]],
        streams: Callable[[], tuple[int, int]],
        errors: Callable[[], Check],
        tls: TlsFiles,
        clock: Clock,
    ) -> None:
        self._upstreams = upstreams
        self._streams = streams
        self._errors = errors
        self._tls = tls
        self._clock = clock

    def document(self) -> dict[str, Any]:
        """The JSON document."""
        in_use, size = self._streams()
        return report(
            {
                **{service: _upstream(serving, known) for service, (serving, known) in self._upstreams().items()},
                "errors_5_minutes": self._errors(),
                "live_logs": Check("ok" if in_use < size else "warning", f"{in_use} of {size}"),
                "certificate": certificate_check(self._tls, self._clock.wall()),
            }
        )


def _upstream(serving: int, known: int) -> Check:
    return Check("ok" if serving == known and known else "warning", f"{serving} of {known} serve")
