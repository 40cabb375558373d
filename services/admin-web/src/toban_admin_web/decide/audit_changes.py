"""What a row of the audit changed, as lines; and the rows of an export, with the text that the hash chain covers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from toban_admin_web.decide.json_fields import as_object
from toban_admin_web.decide.log_text import printable_json
from toban_admin_web.decide.spec_diff import DiffLine

MOST_LINES = 100
"""Lines of one row that a page shows."""
MOST_TEXT = 400
"""Characters of one value that a page shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedEntry:
    """A row with `before` and `after` as PostgreSQL prints them: their hash covers this text."""

    seq: int
    id: int
    at: datetime | None
    actor: str
    action: str
    target: str
    before_json: str
    after_json: str
    reason: str
    address: str
    service: str
    hash: str

    def line(self) -> str:
        """One line of an export, as `toban audit export` prints it."""
        at = self.at.astimezone(UTC).isoformat(timespec="microseconds") if self.at else ""
        values = {"seq": self.seq, "id": self.id, "at": at}
        values |= {name: getattr(self, name) for name in ("actor", "action", "target")}
        values |= {"before": self.before_json, "after": self.after_json}
        values |= {name: getattr(self, name) for name in ("reason", "address", "service", "hash")}
        return json.dumps(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPage:
    """A page of an export."""

    entries: list[ExportedEntry]
    next_cursor: str


def changed_lines(before: Any, after: Any) -> list[DiffLine]:
    """A line for each key that came (+) or went (-), and two for one with another value; … where lines are left out.

    Keys inside objects have their path, such as `retry.attempts`. What is the same on both sides is left out.
    """
    old, new = dict(_leaves("", before)), dict(_leaves("", after))
    lines = [
        line
        for key in (*old, *(key for key in new if key not in old))
        for line in _lines(key, old, new)
        if old.get(key) != new.get(key)
    ]
    return lines if len(lines) <= MOST_LINES else [*lines[:MOST_LINES], DiffLine("…", "")]


def _lines(key: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[DiffLine]:
    for sign, side in (("-", old), ("+", new)):
        if key in side:
            yield DiffLine(sign, f"{key}: {side[key]}" if key else side[key])


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    inside = as_object(value)
    for key, part in inside.items():
        yield from _leaves(f"{path}.{key}" if path else str(key), part)
    if not inside and (path or value not in (None, {})):
        text = value if isinstance(value, str) and path else json.dumps(value, ensure_ascii=False)
        shown = printable_json(text)
        yield path, shown if len(shown) <= MOST_TEXT else f"{shown[:MOST_TEXT]}…"
