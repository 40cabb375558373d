"""The lines of a crontab, numbered, each with the problem that makes it unreadable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

_BOM = b"\xef\xbb\xbf"
# What cron itself skips; other white space belongs to the words.
BLANKS = " \t\r\f\v"
# `<%= x %> * * * *` is a line of a template.
_ASSIGNMENT = re.compile(r"""(?!<%|\{\{|\{%)(?:"[^"]*"|'[^']*'|[^\s=*@'"]+)[ \t]*=""")

# Marks that mean a template wherever they stand. Of Jinja only names, with filters, and not what Go's templates have too:
# `docker ps --format '{{.Names}}'` is a command. A backslash before % makes it the command's own.
_TEMPLATE_ANYWHERE = re.compile(
    r"\{\{-?[ \t]*(?!(?:end|else)\b)[A-Za-z_]\w*(?:\.\w+|\[[^\]]{0,80}\])*[ \t]*(?:\|[^}]{0,200})?-?\}\}"
    r"|\{%[-+]?[ \t]+\w.{0,200}?%\}|<%[=# \t-].{0,200}?%>|(?<!\\)%\(\w+\)[sdri]|@@\w+@@|@[A-Z][A-Z0-9_]+@"
)
# Marks that mean one where a time should be.
_TEMPLATE_IN_TIME = re.compile(
    r"\{\{.*?(?:\}\}|$)|\{[%#].*?(?:[%#]\}|$)|<%.*?(?:%>|$)|\[%.*?(?:%\]|$)|\$\{?\w+\}?|__\w{1,60}__|<[A-Za-z]\w*>|%\w+%"
)
# The words that hold the time: five fields, or one @word.
_TIME_FIELDS = re.compile(r"@[^ \t]*|(?:[^ \t]+[ \t]*){1,5}")
_SHOWN_MARK = 40


class Kind(Enum):
    """What a line is."""

    BLANK = auto()
    COMMENT = auto()
    ASSIGNMENT = auto()
    JOB = auto()


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end. `problem` is why it cannot be read at all ("" = it can)."""

    number: int
    text: str
    kind: Kind
    problem: str = ""


def read_lines(content: bytes) -> tuple[list[Line], list[str]]:
    """The lines, and notes about the file as a whole."""
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


def template_reason(line: Line) -> str:
    """Why a line of a template cannot be carried over, and what to do; "" when it is none."""
    text = line.text.strip(BLANKS)
    mark = _template_mark(text, has_time=line.kind is Kind.JOB)
    if not mark:
        return ""
    shown = mark if len(mark) <= _SHOWN_MARK else f"{mark[: _SHOWN_MARK - 1]}…"
    return (
        f"it is a line of a template: {shown!r} is a placeholder or directive; fill in the template first and import the"
        " result, such as the output of `crontab -l` on a machine that has it"
    )


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


def _template_mark(text: str, *, has_time: bool) -> str:
    if found := _TEMPLATE_ANYWHERE.search(text):
        return found[0]
    fields = _TIME_FIELDS.match(text) if has_time else None
    found = _TEMPLATE_IN_TIME.search(text) if fields else None
    return found[0] if found and fields and found.start() < fields.end() else ""
