"""What a job asks webhooks to be sent: when something happens to its runs, and outside of which hours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FAILED, LATE, LONG, RECOVERED, MISSING = "failed", "late", "long", "recovered", "missing"
KINDS = (FAILED, LATE, LONG, RECOVERED, MISSING)
MAX_RULES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietHours:
    """From one local time to another ("22:00"), over midnight where the second is earlier."""

    start: str
    end: str
    timezone: str = "UTC"

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest."""
        return {"from": self.start, "until": self.end, "timezone": self.timezone}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> QuietHours:
        """The inverse of to_json."""
        return cls(start=data["from"], end=data["until"], timezone=data.get("timezone", "UTC"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyRule:
    """`webhook` gets events of these kinds. `long_after_seconds` counts from the start of a run, `late_after_seconds` from its time; 0 = none."""

    webhook: str
    on: tuple[str, ...] = (FAILED,)
    long_after_seconds: int = 0
    late_after_seconds: int = 0
    quiet_hours: QuietHours | None = None

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest. Statements read it."""
        found: dict[str, Any] = {"webhook": self.webhook, "on": list(self.on)}
        for key in ("long_after_seconds", "late_after_seconds"):
            if getattr(self, key):
                found[key] = getattr(self, key)
        return found | ({"quiet_hours": self.quiet_hours.to_json()} if self.quiet_hours else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NotifyRule:
        """The inverse of to_json."""
        quiet = data.get("quiet_hours")
        return cls(
            webhook=data["webhook"],
            on=tuple(data.get("on", (FAILED,))),
            long_after_seconds=int(data.get("long_after_seconds", 0)),
            late_after_seconds=int(data.get("late_after_seconds", 0)),
            quiet_hours=QuietHours.from_json(quiet) if quiet else None,
        )
