"""A search of one run's log: what the form asks for, and what a log-archiver is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toban_admin_web.decide.log_blocks import LineFilter
from toban_admin_web.decide.log_lines import LogLine

MAX_TEXT = 400
# Hits that are counted, and that a page without scripts shows at a time.
MAX_HITS = 1000
PAGE_HITS = 20
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Lines that contain a text, or match an expression of RE2. `exact`: capital letters differ from small ones."""

    text: str
    regex: bool
    exact: bool
    wanted: LineFilter

    @property
    def words(self) -> str:
        """An expression for the words to mark, which Python and browsers read alike. "" for one of RE2: others may need for ever."""
        return "" if self.regex else _SPECIAL.sub(r"\\\1", self.text)

    def pieces(self, text: str) -> list[tuple[str, bool]]:
        """A line's text in pieces, each with whether it is to be marked."""
        parts = re.split(f"({self.words})", text, flags=0 if self.exact else re.IGNORECASE) if self.words else [text]
        return [(part, number % 2 == 1) for number, part in enumerate(parts)]

    def fields(self) -> dict[str, Any]:
        """Of a SearchLogRequest."""
        text, regex = self.text, self.regex
        # A text is found faster than an expression.
        if not self.exact and text.lower() != text.upper():
            text, regex = f"(?i){self.words or text}", True
        return {**self.wanted.fields(), "grep": text, "regex": regex}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHits:
    """Lines that were found. `whole`: all of the log was searched, so there are no others."""

    lines: Sequence[LogLine]
    whole: bool
    expired: bool = False

    @property
    def count(self) -> str:
        """As text: `1,000+` when there are more."""
        return f"{len(self.lines):,}{'' if self.whole else '+'}"


def parse_log_query(args: Mapping[str, str], wanted: LineFilter) -> LogQuery | None:
    """`find`, `regex` and `case` of a form; None without a text."""
    text = args.get("find", "")[:MAX_TEXT]
    if not text:
        return None
    return LogQuery(text=text, regex=bool(args.get("regex")), exact=bool(args.get("case")), wanted=wanted)


def parse_page(text: str) -> int:
    """The number of a page of hits, from 1."""
    number = int(text) if len(text) <= 3 and text.isascii() and text.isdigit() else 1
    return min(max(number, 1), MAX_HITS // PAGE_HITS)
