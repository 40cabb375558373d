"""Watches a service's certificate files: loads them also while no call comes, and shows them in metrics and /healthz."""

import asyncio
from datetime import datetime

from toban_domain.certificate_expiry import ends_soon
from toban_observability import metrics
from toban_observability.health import Check
from toban_runtime.clock import Clock
from toban_transport.tls import TlsFiles, Triple

LOOK_SECONDS = 1.0

_failures = metrics.counter(
    "toban_tls_reload_failures_total",
    "Changed certificate files that could not be loaded; the last valid ones stay in use.",
)
_reloads = metrics.counter("toban_tls_reloads_total", "Certificate files reloaded without a restart.")
_not_after = metrics.gauge(
    "toban_tls_certificate_not_after_seconds", "When the certificate in use expires, in seconds since 1970."
)
_authority_not_after = metrics.gauge(
    "toban_tls_authority_not_after_seconds",
    "When the authority that issued the certificate in use expires, in seconds since 1970.",
)


def certificate_check(tls: TlsFiles, now: datetime) -> Check:
    """For /healthz: when the certificate in use and its authority end. A warning near the end of either (the last tenth of its life, at most 14
    days) and while newer files cannot be taken, an error after it."""
    triple = tls.current()
    certificate, authority = triple.certificate, triple.authority
    value = {
        "not_after": certificate.not_valid_after_utc.isoformat(),
        "serial": f"{certificate.serial_number:x}",
        "authority_not_after": authority.not_valid_after_utc.isoformat(),
    }
    if certificate.serial_number in triple.denied:
        return Check("error", value | {"problem": "on the deny-list: other services refuse it; issue another one"})
    named = (("", certificate), ("the authority of ca.crt ", authority))
    if over := [whose for whose, item in named if now >= item.not_valid_after_utc]:
        return Check("error", value | {"problem": tls.problem or f"{over[0]}expired"})
    if tls.problem:
        return Check("warning", value | {"problem": tls.problem})
    near = [
        whose
        for whose, item in named
        if ends_soon(now, ends=item.not_valid_after_utc, begins=item.not_valid_before_utc)
    ]
    return Check("warning", value | {"problem": f"{near[0]}expires soon"}) if near else Check("ok", value)


class CertificateWatch:
    """`run` for ever as a task. A service without calls notices new files all the same."""

    def __init__(self, *, tls: TlsFiles, clock: Clock) -> None:
        self._tls = tls
        self._clock = clock
        self._failures = 0
        self._seen = tls.current()
        _tell(self._seen)

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
            _tell(now)
        failures = self._tls.failures
        _failures.inc(failures - self._failures)
        self._failures = failures


def _tell(triple: Triple) -> None:
    _not_after.set(triple.certificate.not_valid_after_utc.timestamp())
    _authority_not_after.set(triple.authority.not_valid_after_utc.timestamp())


async def stop(watch: "asyncio.Task[None]") -> None:
    """End the task of a watch."""
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
