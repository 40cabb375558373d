"""The check of certificates, which several diagnoses share."""

from __future__ import annotations

from datetime import datetime, timedelta

from toban_domain.certificate_expiry import ends_soon
from toban_domain.finding import Finding


def certificate(subject: str, not_after: datetime | None, now: datetime) -> list[Finding]:
    """The end of a certificate: an error when it has passed, a warning when it is near. No finding when the end is unknown.
    When it began is not stored, so near is three days; its own process, which knows its life, may warn earlier."""
    if not_after is None:
        return []
    left = not_after - now
    value = f"valid until {not_after:%Y-%m-%d %H:%M} UTC"
    if not ends_soon(now, ends=not_after, begins=None):
        return [Finding(name="certificate", subject=subject, value=value)]
    expired = left <= timedelta(0)
    return [
        Finding(
            name="certificate",
            subject=subject,
            value=value,
            status="error" if expired else "warning",
            message="its certificate has expired" if expired else f"its certificate ends in {_days(left)}",
            remedy="issue a new one into its SCHEDULER_TLS_DIR; it is taken without a restart",
        )
    ]


def _days(left: timedelta) -> str:
    days, hours = left.days, left.seconds // 3600
    return f"{days} day{'s' if days != 1 else ''}" if days else f"{hours} hour{'s' if hours != 1 else ''}"
