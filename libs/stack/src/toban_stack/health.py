"""Health of each process: of services by /healthz on their HTTP admin port, of servers by a connection."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from toban_domain.finding import format_check_value
from toban_stack.processes import ProcessRecord, alive

TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """One line of `status`: `green` decides the exit code, `health` is the text for people."""

    name: str
    role: str
    address: str
    admin: str
    pid: int
    green: bool
    health: str


def of_service(record: ProcessRecord) -> ProcessStatus:
    """The status of a service, from its /healthz; a warning is green."""
    if not alive(record):
        return _status(record, green=False, health="not running")
    document = healthz(record.admin)
    if document is None:
        return _status(record, green=False, health="no response on its admin port")
    status = str(document.get("status", "error"))
    checks: dict[str, Any] = document.get("checks", {})
    role = str(checks.get("role", {}).get("value", ""))
    bad = [
        f"{name}: {format_check_value(check.get('value'))}"
        for name, check in checks.items()
        if check.get("status") != "ok"
    ]
    health = status if status == "ok" else f"{status} ({'; '.join(bad)})"
    return _status(record, green=status in ("ok", "warning"), health=health, detail=role)


def of_server(record: ProcessRecord, *, ready: bool) -> ProcessStatus:
    """The status of PostgreSQL, Redis or S3."""
    if not alive(record):
        return _status(record, green=False, health="not running")
    return _status(record, green=ready, health="ok" if ready else "does not respond")


def healthz(admin: str) -> dict[str, Any] | None:
    """The document of /healthz at host:port; None without a valid response."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy of the environment
    try:
        with opener.open(f"http://{admin}/healthz", timeout=TIMEOUT_SECONDS) as response:
            raw = response.read()
    except urllib.error.HTTPError as error:
        with error:
            raw = error.read()
    except OSError:
        return None
    try:
        document = json.loads(raw)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _status(record: ProcessRecord, *, green: bool, health: str, detail: str = "") -> ProcessStatus:
    return ProcessStatus(
        name=record.name,
        role=f"{record.role} ({detail})" if detail else record.role,
        address=record.address,
        admin=record.admin,
        pid=record.pid,
        green=green,
        health=health,
    )
