"""One line of `toban doctor`, created by servers and shown by the CLI, and the text of a health check's value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`name` is the check, `subject` the object that was checked; `message` and `remedy` are empty when `status` is ok."""

    name: str
    subject: str
    value: str
    status: Status = "ok"
    message: str = ""
    remedy: str = ""

    @property
    def ok(self) -> bool:
        """True when the check found no problem."""
        return self.status == "ok"


def format_check_value(value: Any) -> str:
    """The value of a /healthz check as text: `rate 0.1, errors 140`, `yes`, or `-` without a value."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_check_value(one)}" for name, one in value.items())
    return str(value)
