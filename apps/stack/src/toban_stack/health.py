"""Health of each process: of services by /healthz on their HTTP admin port, of servers by a connection."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from toban_domain.finding import format_check_value
from toban_stack.processes import ProcessRecord, alive
from toban_stack.supervisor.policy import Exit, span
from toban_stack.supervisor.report import ServiceReport
from toban_stack.toban_command import spelled

TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """One line of `status`: `green` decides the exit code, `health` is the text for people.

    `pid` is 0 when it does not run, `restarts` None when it is not supervised.
    """

    name: str
    role: str
    address: str
    admin: str
    pid: int
    green: bool
    health: str
    restarts: int | None = None
    last_exit: Exit | None = None


def of_service(record: ProcessRecord, *, token: str) -> ProcessStatus:
    """The status of a service, from its /healthz, which asks for `token`; a warning is green."""
    if not alive(record):
        return _status(record, green=False, health="not running", running=False)
    document = healthz(record.admin, token=token)
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
        return _status(record, green=False, health="not running", running=False)
    return _status(record, green=ready, health="ok" if ready else "does not respond")


def supervised(
    rows: Sequence[ProcessStatus],
    supervisor: ProcessRecord,
    reports: Mapping[str, ServiceReport],
    *,
    now: datetime,
) -> list[ProcessStatus]:
    """`rows` with their restarts, and what they wait for, after a line for the supervisor itself."""
    runs = alive(supervisor)
    health = "ok" if runs else f"not running, nothing is restarted: {spelled('make up')}"
    return [
        _status(supervisor, green=runs, health=health, running=runs),
        *(_with_report(row, reports, runs, now) for row in rows),
    ]


def _with_report(row: ProcessStatus, reports: Mapping[str, ServiceReport], runs: bool, now: datetime) -> ProcessStatus:
    report = reports.get(row.name)
    if report is None:
        return row
    waits = runs and not row.pid and report.next_start_at
    health = report.summary(now) if waits else row.health
    return replace(row, health=health, restarts=report.restarts, last_exit=report.last_exit)


def last_exits(rows: Sequence[ProcessStatus], now: datetime) -> list[tuple[str, ...]]:
    """A table of the processes that have ended under the supervisor, with its header; empty without any."""
    table = [
        (
            row.name,
            f"{span(max(0.0, (now - datetime.fromisoformat(row.last_exit.at)).total_seconds()))} ago",
            str(row.last_exit),
            row.last_exit.detail or "-",
        )
        for row in rows
        if row.last_exit is not None
    ]
    return [("ENDED", "WHEN", "CAUSE", "LAST LINE OF ITS LOG"), *table] if table else []


def healthz(admin: str, *, token: str) -> dict[str, Any] | None:
    """The document of /healthz at host:port; None without a valid response."""
    request = urllib.request.Request(f"http://{admin}/healthz", headers={"Authorization": f"Bearer {token}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy of the environment
    try:
        with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
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


def _status(
    record: ProcessRecord, *, green: bool, health: str, detail: str = "", running: bool = True
) -> ProcessStatus:
    return ProcessStatus(
        name=record.name,
        role=f"{record.role} ({detail})" if detail else record.role,
        address=record.address,
        admin=record.admin,
        pid=record.pid if running else 0,
        green=green,
        health=health,
    )
