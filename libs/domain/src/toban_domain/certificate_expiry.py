"""When a certificate counts as expiring soon: one rule for /healthz, `toban doctor` and the coordinators' diagnosis. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

LONGEST = timedelta(days=14)
SHARE = 0.1
UNKNOWN_LIFE = timedelta(days=3)
"""For a certificate with an unknown start of validity: a tenth of thirty days."""


def ends_soon(now: datetime, *, ends: datetime, begins: datetime | None) -> bool:
    """Whether a certificate has expired or is in the last tenth of its validity, at most 14 days before its expiry.

    Issuers usually renew after two thirds of the validity, so a certificate that is renewed in time is never reported."""
    span = UNKNOWN_LIFE if begins is None else min(LONGEST, (ends - begins) * SHARE)
    return ends - now <= span
