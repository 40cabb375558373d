"""When the end of a certificate is near: one rule for /healthz, `toban doctor` and the coordinators' diagnosis. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

LONGEST = timedelta(days=14)
SHARE = 0.1
UNKNOWN_LIFE = timedelta(days=3)
"""Of a certificate whose beginning is not known: a tenth of thirty days."""


def ends_soon(now: datetime, *, ends: datetime, begins: datetime | None) -> bool:
    """Whether a certificate is in the last tenth of its life, at most 14 days before its end, or past it. A service that renews in time
    (issuers do so after two thirds) never sees it."""
    span = UNKNOWN_LIFE if begins is None else min(LONGEST, (ends - begins) * SHARE)
    return ends - now <= span
