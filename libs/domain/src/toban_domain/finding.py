"""One line of `toban doctor`, as servers make it and the command line shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`name` is the check, `subject` what it is about; `message` and `remedy` are empty when `status` is ok."""

    name: str
    subject: str
    value: str
    status: Status = "ok"
    message: str = ""
    remedy: str = ""

    @property
    def ok(self) -> bool:
        """True when there is nothing to remedy."""
        return self.status == "ok"
