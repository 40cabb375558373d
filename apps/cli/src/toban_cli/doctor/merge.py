"""The findings of several servers as one list, and what they mean for the exit code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from toban_domain.finding import Finding

DIAGNOSE_SECONDS = 10.0
ORDER = ("ok", "warning", "error")
EXIT_CODES = {"ok": 0, "error": 1, "warning": 2}


def worst(findings: Iterable[Finding]) -> str:
    """ok, warning or error."""
    return max((finding.status for finding in findings), key=ORDER.index, default="ok")


def merged(reports: Sequence[tuple[str, Sequence[Finding]]]) -> list[Finding]:
    """Findings of several servers about the installation: all of the first, and what only the others find wrong.

    `reports` are (server, findings).
    """
    if not reports:
        return []
    found = list(reports[0][1])
    for server, findings in reports[1:]:
        known = {(item.name, item.subject, item.status) for item in found}
        found += [
            replace(item, subject=f"{item.subject}, seen from {server}")
            for item in findings
            if not item.ok and (item.name, item.subject, item.status) not in known
        ]
    return found


def from_message(check: Any) -> Finding:
    """What a server found, as its message has it."""
    return Finding(
        name=check.name,
        subject=check.subject,
        value=check.value,
        status=check.status if check.status in ("ok", "warning", "error") else "error",
        message=check.message,
        remedy=check.remedy,
    )
