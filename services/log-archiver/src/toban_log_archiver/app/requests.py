"""What readers ask for, and the parts in which they get it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toban_log_archiver.decide.line import Line
from toban_log_archiver.decide.line_filter import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """One Read call. `tokens` are the wanted attempts, empty = all; `head` and `tail` are numbers of lines, 0 = all.

    Only what comes after the line `after` (token, seq) is wanted, and of each attempt the lines `from_seq` to `to_seq` (0 = the last). With
    `raw` the text is wanted in place of lines: the bytes [byte_from, byte_to), where byte_to 0 means up to the end.
    """

    run_id: int
    selection: Selection
    tokens: frozenset[int] = frozenset()
    after: tuple[int, int] = (0, 0)
    from_seq: int = 1
    to_seq: int = 0
    head: int = 0
    tail: int = 0
    follow: bool = False
    raw: bool = False
    byte_from: int = 0
    byte_to: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPart:
    """A part of the answer, of one attempt: lines, or with raw `data` that begins at `byte_offset`. An empty one shows that reading goes on.

    `expired_lines` left the archive; `at_end`: every attempt so far is read to its sealed end; `read_to`: with follow, every line up to this
    one was read, wanted or not.
    """

    token: int
    lines: Sequence[Line] = ()
    data: bytes = b""
    byte_offset: int = 0
    expired_lines: int = 0
    at_end: bool = False
    read_to: int = 0


class SearchPosition(NamedTuple):
    """Every line up to this one was searched; the whole run when `token` is 0, nothing when `run_id` is 0."""

    run_id: int = 0
    token: int = 0
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """One Search call: at most `limit` lines of these runs, in their order; `after` is where an earlier call ended."""

    run_ids: Sequence[int]
    selection: Selection
    limit: int
    after: SearchPosition | None = None


class SearchHit(NamedTuple):
    """A line that was found."""

    run_id: int
    token: int
    line: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPart:
    """A part of the answer. `cut` is set in the last part when there may be more: lines, bytes or time. The counts are those of the call so far."""

    hits: Sequence[SearchHit]
    position: SearchPosition
    cut: str
    runs: int
    bytes: int
    expired_attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLog:
    """What is stored of one attempt, and where."""

    token: int
    lines: int
    raw_bytes: int
    last_seq: int
    sealed: bool
    places: Sequence[str]
    expired_lines: int
