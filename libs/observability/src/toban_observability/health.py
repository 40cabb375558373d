"""The document of /healthz: ok, warning or error, with each check and its value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from toban_observability import metrics

Status = Literal["ok", "warning", "error"]
_ORDER: tuple[Status, ...] = ("ok", "warning", "error")


_state = metrics.gauge(
    "toban_health_state", "Overall state of /healthz: 0 ok, 1 degraded (warning), 2 critical (error)."
)
_checks = metrics.gauge(
    "toban_health_check_state",
    "State of each check of /healthz: 0 ok, 1 degraded (warning), 2 critical (error).",
    ("check",),
)


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its status and the measured value (JSON-serialisable; seconds are numbers).

    `ready`: with an error of this check the process can still serve its callers.
    """

    status: Status
    value: Any = None
    ready: bool = False


def report(checks: Mapping[str, Check]) -> dict[str, Any]:
    """The JSON document: the worst status, whether the process is ready, and each check by name. Without checks the status is ok."""
    worst = max((check.status for check in checks.values()), key=_ORDER.index, default="ok")
    return {
        "status": worst,
        "ready": all(check.ready or check.status != "error" for check in checks.values()),
        "checks": {name: {"status": check.status, "value": check.value} for name, check in checks.items()},
    }


def set_health_metrics(document: Mapping[str, Any]) -> None:
    """Sets the health metrics from a document of `report`."""
    _state.set(_ORDER.index(document["status"]))
    # Removes checks that are no longer made.
    _checks.clear()
    for name, check in document["checks"].items():
        _checks.labels(name).set(_ORDER.index(check["status"]))
