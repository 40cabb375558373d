"""What changed between two definitions: their lines as they are shown, with those that went and came."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from toban_admin_web.decide.json_fields import indent

# Unchanged lines that are shown around a change.
AROUND = 3
# Lines of either side: comparing more would take longer than a page may.
MOST_LINES = 2000


@dataclass(frozen=True, slots=True)
class DiffLine:
    """`sign` is + for a line that came, - for one that went, "" for an unchanged one, and … for lines that are left out."""

    sign: str
    text: str


def spec_diff(before: Any, after: Any) -> list[DiffLine] | None:
    """The lines around each change, [] when nothing changed; None when the definitions are too long to be compared."""
    return text_diff(indent(before), indent(after))


def text_diff(before_text: str, after_text: str) -> list[DiffLine] | None:
    """The same of two texts."""
    before, after = before_text.splitlines(), after_text.splitlines()
    if max(len(before), len(after)) > MOST_LINES:
        return None
    return list(_lines(before, after))


def _lines(before: list[str], after: list[str]) -> Iterator[DiffLine]:
    last = 0
    for group in SequenceMatcher(a=before, b=after).get_grouped_opcodes(AROUND):
        if group[0][1] > last:
            yield DiffLine("…", "")
        for kind, begin, end, other_begin, other_end in group:
            if kind == "equal":
                yield from (DiffLine("", line) for line in before[begin:end])
                continue
            yield from (DiffLine("-", line) for line in before[begin:end])
            yield from (DiffLine("+", line) for line in after[other_begin:other_end])
        last = group[-1][2]
    if 0 < last < len(before):
        yield DiffLine("…", "")
