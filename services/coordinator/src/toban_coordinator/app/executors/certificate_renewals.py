"""Renewal of the certificates of machines that joined, once each (docs/joining.md). Each is in the audit log."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from toban_coordinator.decide.executors.certificate_renewal import (
    REASONS,
    MachineCertificate,
    Refusal,
    refusal,
    unknown,
)
from toban_coordinator.ports.signer import Signed, Signing
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.executors import executor_certificates
from toban_domain.errors import TobanError
from toban_observability import metrics
from toban_observability.context import CALLER
from toban_observability.logs import get_logger
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit, tx

_log = get_logger(__name__)
_refused = metrics.counter(
    "toban_certificate_renewals_refused_total",
    "Renewals of certificates of executors that were refused: unknown (no machine got it by joining), denied (it, or one that it was renewed "
    "from, is on the deny-list), early (before the last half of its life), renewed (it was renewed before: its key may be stolen).",
    ("reason",),
)
for _reason in REASONS:
    _refused.labels(_reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRenewals:
    """Changes table `executor_certificates`. `denied` has the serial numbers of the deny-list."""

    pool: Pool
    signer: Signing
    denied: Callable[[], Collection[int]]

    async def renew(self, request: bytes, *, serial: str, group: str, actor: str) -> Signed:
        """A certificate for another key of the executor whose certificate has this serial number. It counts only when it was signed.

        Raises PERMISSION_DENIED for one that is not renewed any more, RESOURCE_INVALID_STATE before the last half of its life, and what
        Signing raises.
        """
        async with autocommit(self.pool) as t:
            await self._renewable(t, serial, group)
        signed = await self.signer.sign(request, group=group)
        async with tx(self.pool) as t:
            await executor_certificates.hold_alone(t)
            old = await self._renewable(t, serial, group)
            await executor_certificates.add(
                t,
                signed.serial,
                group=group,
                parent=serial,
                invite=old.invite,
                machine=old.machine,
                ends_at=signed.ends_at,
            )
            after = {"serial": signed.serial, "machine": old.machine, "ends_at": signed.ends_at.isoformat()}
            target = f"certificate {serial} of executor group {group}"
            await audit.note(t, actor, "executor.renew", target, after=after)
        _log.info("the certificate of an executor was renewed", serial=serial, new_serial=signed.serial, group=group)
        return signed

    async def _renewable(self, t: Tx, serial: str, group: str) -> MachineCertificate:
        found = await executor_certificates.find(t, serial)
        if found is None:
            raise _refuse(unknown(serial), serial, group)
        certificate, now = found
        if why := refusal(certificate, self.denied(), now):
            raise _refuse(why, serial, group)
        return certificate


def _refuse(why: Refusal, serial: str, group: str) -> TobanError:
    _refused.labels(why.reason).inc()
    caller = CALLER.get().address
    _log.warning(
        "renewal of a certificate refused",
        reason=why.reason,
        serial=serial,
        group=group,
        caller=caller,
        why=why.message,
    )
    return TobanError(why.code, why.message)
