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


def action_words(action: str) -> str:
    """An action in words. Stored names are of two kinds, job.disable and add_rule; rows of both stay findable by them."""
    noun, _, verb = action.rpartition(".")
    return f"{verb} {noun}".strip().replace("_", " ")


def changed_lines(before: Any, after: Any) -> list[DiffLine]:
    """A line for each key that came (+) or went (-), and two for one with another value; … where lines are left out.

    Keys inside objects have their path, such as `retry.attempts`. What is the same on both sides is left out.
    """
    old, new = dict(_leaves("", before)), dict(_leaves("", after))
    lines = [
        line
        for key in (*old, *(key for key in new if key not in old))
        for line in _lines(key, old, new)
        if (key in old, key in new) != (True, True) or _differs(old[key], new[key])
    ]
    return lines if len(lines) <= MOST_LINES else [*lines[:MOST_LINES], DiffLine("…", "")]


def _differs(one: Any, other: Any) -> bool:
    # 1, true and 1.0 are equal in Python.
    return json.dumps(one) != json.dumps(other)


def _lines(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[DiffLine]:
    for sign, side in (("-", old), ("+", new)):
        if key in side:
            shown = _shown(side[key], alone=not key)
            yield DiffLine(sign, f"{key}: {shown}" if key else shown)


def _shown(value: Any, *, alone: bool) -> str:
    """A value as text, its beginning when it is long; a text that is the `alone` value has its quotes."""
    text = printable_json(value if isinstance(value, str) and not alone else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    inside = as_object(value)
    for key, part in inside.items():
        yield from _leaves(f"{path}.{key}" if path else str(key), part)
    if not inside and (path or value not in (None, {})):
        yield path, value
