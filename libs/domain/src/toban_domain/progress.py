"""Progress that a job reports: a percentage and a summary, with a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

MAX_SUMMARY = 200
"""Maximum length of the summary in characters; longer ones are truncated."""


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
        """The inverse of to_json for untrusted data: cleans and truncates the summary. Raises ValueError for invalid data."""
        if not isinstance(data, Mapping):
            raise ValueError("progress must be a mapping")
        percentage, summary, at = (data.get(key) for key in ("percentage", "summary", "at"))
        if isinstance(percentage, bool) or not isinstance(percentage, int | float):
            raise ValueError("progress has no numeric percentage")
        # Also rejects NaN and infinity.
        if not 0 <= percentage <= 100:
            raise ValueError("the percentage of the progress is not within 0 … 100")
        if not isinstance(at, str):
            raise ValueError("progress has no time")
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None:
            raise ValueError("the time of the progress has no UTC offset")
        text = summary if isinstance(summary, str) else ""
        return cls(percentage=float(percentage), summary=clean(text), at=_in_utc(moment))


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time of the progress is before the year 1 or after 9999 in UTC") from None


def clean(text: str) -> str:
    """`text` as one line of at most MAX_SUMMARY printable characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:MAX_SUMMARY]
