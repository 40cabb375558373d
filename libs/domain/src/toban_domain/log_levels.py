"""Recognises structured lines, and the level that they give themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from toban_domain.dropped_lines import LEVEL_NAMES

_KEYS = ("level", "severity", "lvl")
_MARKS = tuple(key.encode() for key in _KEYS)
_WORDS: Mapping[bytes, str] = {
    b"trace": "trace",
    b"debug": "debug",
    b"info": "info",
    b"information": "info",
    b"notice": "info",
    b"warn": "warning",
    b"warning": "warning",
    b"error": "error",
    b"err": "error",
    b"fatal": "fatal",
    b"critical": "fatal",
    b"crit": "fatal",
    b"alert": "fatal",
    b"emergency": "fatal",
    b"emerg": "fatal",
    b"panic": "fatal",
}
# The numbers of pino and bunyan.
_NUMBERS: Mapping[int, str] = {10: "trace", 20: "debug", 30: "info", 40: "warning", 50: "error", 60: "fatal"}
_NUMBER_OF = {word: number for number, word in enumerate(LEVEL_NAMES)}
# As loggers write them, so that most lines need one look.
_NUMBER_OF_TOKEN = {
    **{spelt: _NUMBER_OF[level] for word, level in _WORDS.items() for spelt in (word, word.upper(), word.title())},
    **{b"%d" % number: _NUMBER_OF[level] for number, level in _NUMBERS.items()},
}

_KEY = rb"(?:level|severity|lvl)"
# A key of the outermost object that comes before anything nested and before any escape: nearly all loggers write such.
_FLAT = re.compile(
    rb'\{\s*(?:"[^"\\]*"\s*:\s*(?:"[^"\\]*"|[^"{}\[\],]+),\s*)*?'
    rb'"' + _KEY + rb'"\s*:\s*(?:"([A-Za-z]{1,16})"|(\d{1,3}))\s*[,}]'
)
_LOGFMT = re.compile(rb"(?:^|\s)" + _KEY + rb'=(?:"([A-Za-z]{1,16})"|([A-Za-z]{1,16}))(?=\s|$)')
_CLOSED = (b"}", b"}\r")


def may_have_levels(text: bytes) -> bool:
    """False when no line of this text can have a level: a look that costs next to nothing."""
    # A single byte is found many times faster than a word.
    return (b"{" in text or b"=" in text) and any(mark in text for mark in _MARKS)


def levels_of(text: bytes) -> bytes:
    """The levels of whole lines, each with its newline: a byte a line (its place in LEVEL_NAMES); empty when no line has one."""
    if not may_have_levels(text):
        return b""
    found = bytes([_number_of(line) for line in text[:-1].split(b"\n")])
    return found if any(found) else b""


def _number_of(line: bytes) -> int:
    flat = _FLAT.match(line)
    if flat is not None and line.endswith(_CLOSED):
        number = _NUMBER_OF_TOKEN.get(flat[flat.lastindex or 0])
        if number is not None:
            return number
    return _NUMBER_OF[level_of(line)]


def level_of(line: bytes) -> str:
    """trace | debug | info | warning | error | fatal of a JSON object or logfmt line; empty for every other line."""
    if line[:1] == b"{":
        flat = _FLAT.match(line)
        if flat is not None and line.endswith(_CLOSED):
            level = _word(flat[1]) if flat[1] else _NUMBERS.get(int(flat[2]), "")
            if level:
                return level
    elif b"=" not in line and b"{" not in line:
        return ""
    if not may_have_levels(line):
        return ""
    bare = line.strip()
    if bare[:1] == b"{":
        return _parsed(bare) if bare[-1:] == b"}" else ""
    found = _LOGFMT.search(bare)
    return _word(found[1] or found[2]) if found else ""


def _parsed(line: bytes) -> str:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    for key in _KEYS:
        value = body.get(key)
        if isinstance(value, str) and (word := _word(value.encode(errors="replace"))):
            return word
        if isinstance(value, int) and not isinstance(value, bool) and value in _NUMBERS:
            return _NUMBERS[value]
    return ""


def _word(word: bytes) -> str:
    return _WORDS.get(word.lower(), "")
