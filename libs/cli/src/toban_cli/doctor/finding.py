"""One line of `toban doctor`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ORDER = ("ok", "warning", "error")
EXIT_CODES = {"ok": 0, "error": 1, "warning": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`name` is the check, `subject` what it is about; `message` and `remedy` are empty when `status` is ok."""

    name: str
    subject: str
    value: str
    status: str = "ok"
    message: str = ""
    remedy: str = ""

    @property
    def ok(self) -> bool:
        """Whether there is nothing to remedy."""
        return self.status == "ok"


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
            Finding(
                name=item.name,
                subject=f"{item.subject}, as {server} sees it",
                value=item.value,
                status=item.status,
                message=item.message,
                remedy=item.remedy,
            )
            for item in findings
            if not item.ok and (item.name, item.subject, item.status) not in known
        ]
    return found
