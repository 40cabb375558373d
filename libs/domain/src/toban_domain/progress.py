"""Progress that a job reports: a percentage and a summary, with a time; by its socket also what is done of how much, and when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

MAX_SUMMARY = 200
"""Maximum length of the summary in characters; longer ones are truncated."""

MAX_COUNT = 10**15
MAX_ETA_SECONDS = 366 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """`percentage` is 0 … 100; `summary` has at most MAX_SUMMARY characters in one line; `at` is the executor's wall clock in UTC.

    `steps` is (done, total) of the job's own units of work; `eta` is when it expects to end.
    """

    percentage: float
    summary: str = ""
    at: datetime
    steps: tuple[int, int] | None = None
    eta: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """The stored form. Whole percentages are whole numbers."""
        percentage = int(self.percentage) if self.percentage == int(self.percentage) else self.percentage
        stored: dict[str, Any] = {"percentage": percentage, "summary": self.summary, "at": self.at.isoformat()}
        if self.steps is not None:
            stored["steps"] = {"done": self.steps[0], "total": self.steps[1]}
        if self.eta is not None:
            stored["eta"] = self.eta.isoformat()
        return stored

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
        text = summary if isinstance(summary, str) else ""
        return cls(
            percentage=float(percentage),
            summary=clean(text),
            at=_in_utc(at),
            steps=_steps(data.get("steps")),
            eta=None if data.get("eta") is None else _in_utc(data["eta"]),
        )


def _steps(value: object) -> tuple[int, int] | None:
    """(done, total); None when there are none, or none that can be."""
    if not isinstance(value, Mapping):
        return None
    done, total = value.get("done"), value.get("total")
    if isinstance(done, bool) or isinstance(total, bool) or not isinstance(done, int) or not isinstance(total, int):
        return None
    return (done, total) if 0 <= done <= total and 0 < total <= MAX_COUNT else None


def _in_utc(at: object) -> datetime:
    if not isinstance(at, str):
        raise ValueError("progress has no time")
    moment = datetime.fromisoformat(at)
    if moment.tzinfo is None:
        raise ValueError("the time of the progress has no UTC offset")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time of the progress is before the year 1 or after 9999 in UTC") from None


def clean(text: str) -> str:
    """`text` as one line of at most MAX_SUMMARY printable characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:MAX_SUMMARY]
