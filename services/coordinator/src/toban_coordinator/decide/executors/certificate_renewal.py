"""Whether a certificate that a machine got may be renewed (docs/joining.md). Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from toban_domain.errors import ErrorCode

PART_LEFT = 1 / 2
"""Renewal begins in the last half of a certificate's life; executors begin in the last third."""

LOST_ANSWER = timedelta(minutes=30)
"""How long after its first renewal a certificate may be renewed again: an executor that got no answer asks again every 10 minutes."""

REASONS = ("unknown", "denied", "early", "renewed")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCertificate:
    """A certificate of a machine. `line`: its serial number, then those that it was renewed from. `renewed_at`: its first renewal.

    `is_overtaken`: another certificate that was renewed from the same one was itself renewed.
    """

    serial: str
    invite: int | None
    machine: str
    signed_at: datetime
    ends_at: datetime
    line: Sequence[str]
    renewed_at: datetime | None
    is_overtaken: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a certificate is not renewed: one of REASONS, and what the caller sees."""

    reason: str
    code: ErrorCode
    message: str


def refusal(found: MachineCertificate, denied: Collection[int], now: datetime) -> Refusal | None:
    """None when it may be renewed. `denied` has the serial numbers of the deny-list."""
    refused = [serial for serial in found.line if int(serial, 16) in denied]
    if refused:
        message = f"certificate {found.serial} cannot be renewed: {refused[0]} is on the deny-list; join the machine again with a new invite"
        return Refusal("denied", ErrorCode.PERMISSION_DENIED, message)
    if found.is_overtaken or (found.renewed_at is not None and now - found.renewed_at > LOST_ANSWER):
        message = (
            f"certificate {found.serial} was renewed already: someone else may have its key; deny it and what was renewed from it "
            f"(`toban audit list --target {found.line[-1]}`), and join the machine again with a new invite"
        )
        return Refusal("renewed", ErrorCode.PERMISSION_DENIED, message)
    begins = found.ends_at - (found.ends_at - found.signed_at) * PART_LEFT
    if now < begins:
        message = f"certificate {found.serial} can be renewed from {begins:%Y-%m-%d %H:%M:%S} UTC on, in the last half of its life"
        return Refusal("early", ErrorCode.RESOURCE_INVALID_STATE, message)
    return None


def unknown(serial: str) -> Refusal:
    """For a certificate that no machine got by joining or by renewal."""
    message = (
        f"certificate {serial} cannot be renewed: no machine got it by joining; renew it where it was made, or unset "
        "SCHEDULER_RENEW_CERTIFICATE of the executor"
    )
    return Refusal("unknown", ErrorCode.PERMISSION_DENIED, message)
