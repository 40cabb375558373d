"""Keeps an eye on a service's certificate files: loads them while nobody calls, and tells metrics and /healthz about them."""

import asyncio
from datetime import datetime, timedelta

from toban_observability import metrics
from toban_observability.health import Check
from toban_runtime.clock import Clock
from toban_transport.tls import TlsFiles

LOOK_SECONDS = 1.0
_WARN_BEFORE = timedelta(days=14)
_WARN_SHARE = 0.1

_failures = metrics.counter(
    "toban_tls_reload_failures_total",
    "Changed certificate files that could not be taken: the last good ones stay in use.",
)
_reloads = metrics.counter("toban_tls_reloads_total", "Certificate files that replaced others without a restart.")
_not_after = metrics.gauge(
    "toban_tls_certificate_not_after_seconds", "When the certificate in use expires, in seconds since 1970."
)


def certificate_check(tls: TlsFiles, now: datetime) -> Check:
    """For /healthz: when the certificate in use ends. A warning near its end (the last tenth of its life, at most 14 days) and while newer
    files cannot be taken, an error after it."""
    certificate = tls.current().certificate
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    value = {"not_after": ends.isoformat(), "serial": f"{certificate.serial_number:x}"}
    if now >= ends:
        return Check("error", value | {"problem": tls.problem or "expired"})
    if tls.problem:
        return Check("warning", value | {"problem": tls.problem})
    near = ends - now <= min(_WARN_BEFORE, (ends - begins) * _WARN_SHARE)
    return Check("warning", value | {"problem": "expires soon"}) if near else Check("ok", value)


class CertificateWatch:
    """`run` for ever as a task. A service that nobody calls notices new files all the same."""

    def __init__(self, *, tls: TlsFiles, clock: Clock) -> None:
        self._tls = tls
        self._clock = clock
        self._failures = 0
        self._seen = tls.current()
        _not_after.set(self._seen.certificate.not_valid_after_utc.timestamp())

    async def run(self) -> None:
        """Look each second."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Look once."""
        now = self._tls.current()
        if now is not self._seen:
            self._seen = now
            _reloads.inc()
            _not_after.set(now.certificate.not_valid_after_utc.timestamp())
        failures = self._tls.failures
        _failures.inc(failures - self._failures)
        self._failures = failures


async def stop(watch: "asyncio.Task[None]") -> None:
    """End the task of a watch."""
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
