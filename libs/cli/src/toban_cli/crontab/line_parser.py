"""The lines of a crontab, numbered, with what cannot be read told of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

_BOM = b"\xef\xbb\xbf"
# What cron itself skips; other white space belongs to the words.
BLANKS = " \t\r\f\v"
# `<%= x %> * * * *` is a line of a template.
_ASSIGNMENT = re.compile(r"""(?!<%|\{\{|\{%)(?:"[^"]*"|'[^']*'|[^\s=*@'"]+)[ \t]*=""")


class Kind(Enum):
    """What a line is."""

    BLANK = auto()
    COMMENT = auto()
    ASSIGNMENT = auto()
    JOB = auto()


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end. `problem` says why it cannot be read at all ("" = it can)."""

    number: int
    text: str
    kind: Kind
    problem: str = ""


def read_lines(content: bytes) -> tuple[list[Line], list[str]]:
    """The lines, and what is to be said of the file as a whole."""
    notes = []
    if content.startswith(_BOM):
        content = content[len(_BOM) :]
        notes.append("the file begins with a byte order mark, which cron takes for part of the first line: left out")
    pieces = content.split(b"\n")
    if pieces[-1]:
        notes.append(
            "the last line has no line end: cron and crontab(1) may refuse such a file; it is read as if it had one"
        )
    else:
        pieces.pop()
    if any(piece.endswith(b"\r") for piece in pieces):
        notes.append("lines end as on Windows (CR LF): the CR, which cron takes for part of the command, is left out")
    return [_line(number, piece.removesuffix(b"\r")) for number, piece in enumerate(pieces, start=1)], notes


def _line(number: int, raw: bytes) -> Line:
    problem = ""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
        problem = "it has bytes that are not UTF-8; convert the file (iconv -f LATIN1 -t UTF-8) and import it again"
    if "\0" in text:
        problem = "it has a NUL byte; take it out and import again"
    return Line(number, text, _kind(text), problem)


def _kind(text: str) -> Kind:
    bare = text.strip(BLANKS)
    if not bare:
        return Kind.BLANK
    if bare.startswith("#"):
        return Kind.COMMENT
    return Kind.ASSIGNMENT if _ASSIGNMENT.match(bare) else Kind.JOB
