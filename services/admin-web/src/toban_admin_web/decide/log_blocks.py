"""Blocks of a run's log: which lines a page asks for, in which reads, and how much of them it gets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toban_admin_web.decide.log_cursor import MAX_TOKEN, Cursor, parse_cursor
from toban_admin_web.decide.log_lines import LogLine

BLOCK_LINES = 500
# Of a longer line a page shows this much, characters.
MOST_OF_A_LINE = 10_000
# Text of a block, characters. A line counts as at most MOST_OF_A_LINE.
BLOCK_SIZE = 1_000_000
STREAMS = ("stdout", "stderr", "system")
LEVELS = ("trace", "debug", "info", "warning", "error", "fatal")
# Markers by which a job speaks to the executor are whole lines of stdout, see docs/jobs.md.
_MARKER = re.compile(r"::(?:progress [^\n]*|heartbeat|output [^\n]*|log_ref [^\n]*)::[ \t\r]*")
_MOST_OF_A_MARKER = 16 * 1024
_REFERENCE = re.compile(r"#?(?:A([0-9]{1,6})-)?L?([0-9]{1,18})", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFilter:
    """Which lines of a log are wanted: of these streams (empty = all) and of at least this level (empty = also those without one)."""

    streams: tuple[str, ...] = ()
    level: str = ""

    def fields(self) -> dict[str, Any]:
        """Of a request to a log-archiver."""
        return {"streams": self.streams, "level": self.level}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockQuery:
    """At most `lines` lines after a position, before it (None: the end of the log), or on both sides, with the line at the position itself."""

    side: str
    at: Cursor | None
    lines: int
    wanted: LineFilter


def parse_line_filter(streams: Iterable[str], level: str) -> LineFilter:
    """The filter in a query; unknown names are left out."""
    known = tuple(name for name in STREAMS if name in set(streams))
    return LineFilter(
        streams=() if len(known) == len(STREAMS) else known,
        level=level if level in LEVELS else "",
    )


def parse_block_query(args: Mapping[str, str], wanted: LineFilter) -> BlockQuery | None:
    """`after`, `before` or `around` with a position `token:seq`, or `before=end`; `limit`. None for anything else."""
    given = [side for side in ("after", "before", "around") if side in args]
    if len(given) != 1:
        return None
    [side], text = given, args[given[0]]
    limit = args.get("limit", str(BLOCK_LINES))
    if len(limit) > 4 or not (limit.isascii() and limit.isdigit() and 0 < int(limit) <= BLOCK_LINES):
        return None
    at = None if (side, text) == ("before", "end") else parse_cursor(text)
    if at == Cursor() and text != "0:0":
        return None
    return BlockQuery(side=side, at=at, lines=int(limit), wanted=wanted)


def reads_before(at: Cursor | None, tokens: Iterable[int], lines: int) -> list[dict[str, Any]]:
    """Fields of the reads that give the last `lines` lines before a position, the nearest attempt first; the second read is for what the first
    one lacks."""
    if at is None:
        return [{"tail": lines}]
    reads: list[dict[str, Any]] = []
    # Number 0 as the last one would be no limit.
    if at.token and at.seq > 1:
        reads.append({"token": at.token, "to_seq": at.seq - 1, "tail": lines})
    older = sorted(token for token in tokens if token < at.token)
    if older:
        reads.append({"tokens": older, "tail": lines})
    return reads


def read_after(at: Cursor, lines: int) -> dict[str, Any]:
    """Fields of the read that gives the next lines."""
    return {"after": {"token": at.token, "seq": at.seq}, "head": lines}


def cut_after(lines: Sequence[LogLine], size: int = BLOCK_SIZE) -> list[LogLine]:
    """The first lines of so much text, at least one."""
    kept: list[LogLine] = []
    for line in lines:
        size -= min(len(line.text), MOST_OF_A_LINE)
        if size < 0 and kept:
            break
        kept.append(line)
    return kept


def cut_before(lines: Sequence[LogLine], size: int = BLOCK_SIZE) -> list[LogLine]:
    """The last lines of so much text, at least one."""
    return cut_after(lines[::-1], size)[::-1]


def line_reference(text: str, tokens: Sequence[int], *, shown: int) -> Cursor | None:
    """The position of `120`, `L120` (of attempt `shown`) or `A2-L120`, where attempts count from 1; None when there is no such attempt."""
    found = _REFERENCE.fullmatch(text.strip())
    if not found or not 0 < int(found[2]) < MAX_TOKEN:
        return None
    number = int(found[1]) if found[1] else 0
    if number > len(tokens) or (found[1] and not number) or not (number or shown):
        return None
    return Cursor(tokens[number - 1] if number else shown, int(found[2]))


def line_anchor(token: int, seq: int, numbers: Mapping[int, int]) -> str:
    """The id of a line in a page: `L120`, or `A2-L120` when the run has several attempts."""
    return f"A{numbers.get(token, 0)}-L{seq}" if len(numbers) > 1 else f"L{seq}"


def is_marker(line: LogLine) -> bool:
    """Whether a line speaks to the executor."""
    if line.stream != "stdout" or line.partial or line.first_seq or not line.text.startswith("::"):
        return False
    return len(line.text) <= _MOST_OF_A_MARKER and _MARKER.fullmatch(line.text) is not None


def spans_around(lines: Sequence[LogLine], context: int) -> list[tuple[int, int, int]]:
    """(token, first, last) of the lines around each of these, which are in order; spans that touch are one."""
    spans: list[tuple[int, int, int]] = []
    for line in lines:
        first, last = max(1, line.seq - context), line.seq + context
        if spans and spans[-1][0] == line.token and first <= spans[-1][2] + 1:
            spans[-1] = (line.token, spans[-1][1], last)
        else:
            spans.append((line.token, first, last))
    return spans
