"""What /healthz says: ok, warning or error with each check and its value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "warning", "error"]
_ORDER: tuple[Status, ...] = ("ok", "warning", "error")


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its status and the value that was seen (JSON-serialisable; seconds are numbers)."""

    status: Status
    value: Any = None


def report(checks: Mapping[str, Check]) -> dict[str, Any]:
    """The JSON document: the worst status, and each check by name. No checks is ok."""
    worst = max((check.status for check in checks.values()), key=_ORDER.index, default="ok")
    return {
        "status": worst,
        "checks": {name: {"status": check.status, "value": check.value} for name, check in checks.items()},
    }
