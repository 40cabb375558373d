"""Reads of a run's stored output for one answer: a block of lines, a search, lines around hits. All of them end at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.log_blocks import (
    BLOCK_SIZE,
    MOST_OF_A_LINE,
    BlockQuery,
    LineFilter,
    cut_after,
    cut_before,
    read_after,
    reads_before,
    spans_around,
)
from toban_admin_web.decide.log_cursor import Cursor
from toban_admin_web.decide.log_find import MAX_HITS, LogHits, LogQuery
from toban_admin_web.decide.log_lines import LogLine, LogPlace
from toban_admin_web.ports.logs import ReadTicket
from toban_admin_web.views.view_context import context, read_ticket
from toban_domain.errors import ErrorCode, TobanError

_NOT_NOW = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED})


class Block:
    """Consecutive wanted lines. `start` and `end`: the log has none before and, at the time of the read, after them."""

    def __init__(self, lines: Sequence[LogLine], *, start: bool, end: bool) -> None:
        self.lines = lines
        self.start = start
        self.end = end


class LogReads:
    """The reads of one request, which have so many seconds together."""

    def __init__(self, run: Run, *, seconds: float) -> None:
        self._run = run
        self._logs = context().logs
        self._clock = context().clock
        self._ends_at = self._clock.monotonic() + seconds
        self._ticket: ReadTicket = read_ticket(run.id)
        self.tokens = [int(attempt.token) for attempt in run.attempts]

    def block(self, query: BlockQuery) -> Block:
        """The lines that a page asks for. Raises TobanError when they cannot be read in time."""
        if query.side == "before" or query.at is None:
            lines, start = self._before(query.at, query.lines, query.wanted)
            return Block(lines, start=start, end=query.at is None)
        if query.side == "after":
            lines, end = self._after(query.at, query.lines, query.wanted)
            return Block(lines, start=query.at == Cursor(), end=end)
        half = max(1, query.lines // 2)
        earlier, start = self._before(query.at, half, query.wanted)
        later, end = self._after(Cursor(query.at.token, query.at.seq - 1), half, query.wanted)
        return Block([*earlier, *later], start=start, end=end)

    def find(self, query: LogQuery) -> LogHits:
        """The first hits, as far as the time goes. Raises INVALID_ARGUMENT, and TobanError when nothing can be searched in time."""
        hits: list[LogLine] = []
        place: LogPlace | None = None
        # One more tells whether there are more.
        while True:
            fields = {**query.fields(), "limit": MAX_HITS + 1 - len(hits)}
            try:
                found = self._logs.search(
                    [self._run.id], self._ticket, fields, after=place, seconds=max(0.1, self._left())
                )
            except TobanError as error:
                if place is None or error.code not in _NOT_NOW:
                    raise
                return LogHits(lines=hits, whole=False)
            hits += [line for _, line in found.lines]
            expired = found.expired_attempts > 0
            if len(hits) > MAX_HITS:
                return LogHits(lines=hits[:MAX_HITS], whole=False, expired=expired)
            if not found.cut:
                return LogHits(lines=hits, whole=True, expired=expired)
            if found.place == place or self._left() <= 0:
                return LogHits(lines=hits, whole=False, expired=expired)
            place = found.place

    def around(self, hits: Sequence[LogLine], lines: int) -> list[list[LogLine]]:
        """Groups of consecutive lines: each hit with so many lines before and after it; when time is short, without these."""
        groups: list[list[LogLine]] = []
        for token, first, last in spans_around(hits, lines):
            inside = [one for one in hits if one.token == token and first <= one.seq <= last]
            try:
                fields = {"token": token, "from_seq": first, "to_seq": last, "streams": ()}
                groups.append(self._select(fields) or inside)
            except TobanError as error:
                if error.code not in _NOT_NOW:
                    raise
                groups.append(inside)
        return groups

    def _before(self, at: Cursor | None, lines: int, wanted: LineFilter) -> tuple[list[LogLine], bool]:
        found: list[LogLine] = []
        for fields in reads_before(at, self.tokens, lines):
            left = lines - len(found)
            if left <= 0:
                break
            found = [*self._select({**wanted.fields(), **fields, "tail": left}), *found]
        kept = cut_before(found)
        return kept, len(found) < lines and len(kept) == len(found)

    def _after(self, at: Cursor, lines: int, wanted: LineFilter) -> tuple[list[LogLine], bool]:
        found = self._select({**wanted.fields(), **read_after(at, lines)})
        kept = cut_after(found)
        return kept, len(found) < lines and len(kept) == len(found)

    def _select(self, fields: Mapping[str, Any]) -> list[LogLine]:
        if self._left() <= 0:
            raise TobanError(ErrorCode.DEADLINE_EXCEEDED, "the lines could not be read in time; try again")
        lines: list[LogLine] = []
        size = 0
        for part in self._logs.select(self._run.id, self._ticket, fields, seconds=self._left()):
            lines += part.lines
            size += sum(min(len(line.text), MOST_OF_A_LINE) for line in part.lines)
            # The last lines come whole: the nearest are at the end.
            if size > BLOCK_SIZE and "tail" not in fields:
                break
        return lines

    def _left(self) -> float:
        return self._ends_at - self._clock.monotonic()
