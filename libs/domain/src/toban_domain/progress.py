"""How far a job says it is: a percentage and a few words, at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

MAX_SUMMARY = 200
"""Characters of the words; what is longer is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """`percentage` is 0 … 100; `summary` has at most MAX_SUMMARY characters in one line; `at` is the executor's wall clock in UTC."""

    percentage: float
    summary: str = ""
    at: datetime

    def to_json(self) -> dict[str, Any]:
        """The stored form. Whole percentages are whole numbers."""
        percentage = int(self.percentage) if self.percentage == int(self.percentage) else self.percentage
        return {"percentage": percentage, "summary": self.summary, "at": self.at.isoformat()}

    @classmethod
    def from_json(cls, data: object) -> Progress:
        """The inverse of to_json, for data from elsewhere: words are cleaned and cut. Raises ValueError when it is no progress."""
        if not isinstance(data, Mapping):
            raise ValueError("progress must be a mapping")
        percentage, summary, at = (data.get(key) for key in ("percentage", "summary", "at"))
        if isinstance(percentage, bool) or not isinstance(percentage, int | float):
            raise ValueError("progress has no percentage")
        # Also what is no number, and what is too large for a float.
        if not 0 <= percentage <= 100:
            raise ValueError("the percentage of a progress is not within 0 … 100")
        if not isinstance(at, str):
            raise ValueError("progress has no time")
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None:
            raise ValueError("the time of a progress has no zone")
        words = summary if isinstance(summary, str) else ""
        return cls(percentage=float(percentage), summary=clean(words), at=_in_utc(moment))


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time of a progress is before the year 1 or after 9999 in UTC") from None


def clean(words: str) -> str:
    """One line of at most MAX_SUMMARY characters that every store and terminal can hold."""
    return " ".join("".join(char if char.isprintable() else " " for char in words).split())[:MAX_SUMMARY]
