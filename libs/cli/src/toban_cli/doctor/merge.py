"""The findings of several servers as one list, and what they mean for the exit code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from toban_domain.finding import Finding

ORDER = ("ok", "warning", "error")
EXIT_CODES = {"ok": 0, "error": 1, "warning": 2}


def worst(findings: Iterable[Finding]) -> str:
    """ok, warning or error."""
    return max((finding.status for finding in findings), key=ORDER.index, default="ok")


def merged(answers: Sequence[tuple[str, Sequence[Finding]]]) -> list[Finding]:
    """What several servers of one kind say of the installation: all of the first, of the others what they alone find wrong.

    `answers` are (server, findings).
    """
    if not answers:
        return []
    found = list(answers[0][1])
    for server, findings in answers[1:]:
        known = {(item.name, item.subject, item.status) for item in found}
        found += [
            replace(item, subject=f"{item.subject}, as {server} sees it")
            for item in findings
            if not item.ok and (item.name, item.subject, item.status) not in known
        ]
    return found
