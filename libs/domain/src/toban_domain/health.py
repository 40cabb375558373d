"""What a check of /healthz saw, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def seen_words(value: Any) -> str:
    """`rate 0.1, errors 140`, `yes`, `-` where nothing was seen."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {seen_words(one)}" for name, one in value.items())
    return str(value)
