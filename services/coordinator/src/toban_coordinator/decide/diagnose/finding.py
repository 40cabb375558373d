"""What a check says, and the few facts that several checks share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from toban_domain.certificate_expiry import ends_soon

Status = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of `toban doctor`: `name` is the check, `subject` what it is about; `message` and `remedy` are empty when all is well."""

    name: str
    subject: str
    value: str
    status: Status = "ok"
    message: str = ""
    remedy: str = ""


def certificate(subject: str, not_after: datetime | None, now: datetime) -> list[Finding]:
    """The end of a certificate: an error when it has passed, a warning when it is near. Nothing is said of one that nobody knows.
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
