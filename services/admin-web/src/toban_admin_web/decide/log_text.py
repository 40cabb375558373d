"""Texts from outside for display: without terminal codes, control characters and changes of writing direction; parts of a long log line joined."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from toban_admin_web.decide.log_lines import LogLine

# CSI and OSC sequences, other two-byte escapes, then every control character but the tab.
_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# Of these a log keeps the ones that set colours and weights (SGR), with plain numbers as their parameters. In place of their escape character a
# zero byte marks them, so that what other removals join is none.
_SGR = re.compile(r"\x1b\[[0-9;]{0,40}m")
_MARKED = re.compile(r"\x00\[[0-9;]*m")
_CODES_AND_ZERO = re.compile(f"{_CODES.pattern}|\\x00")
# The same without line breaks.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """One line without terminal codes, control characters and changes of writing direction.

    Of a line that was overwritten (carriage returns) the last version stays.
    """
    text = _CODES.sub("", text).rstrip("\r")
    return _CONTROL.sub("", text.rpartition("\r")[2])


def coloured(text: str) -> str:
    """As `clean`, with the codes that set colours and weights."""
    if "\x1b" not in text:
        return clean(text)
    versions = _CODES_AND_ZERO.sub(_mark_colours, text).split("\r")
    # Of an overwritten line the last version with a text.
    last = next((one for one in reversed(versions) if _MARKED.sub("", one)), "")
    shown = "\x1b".join(_CONTROL.sub("", piece) for piece in last.split("\x00"))
    return shown if _SGR.sub("", shown) else ""


def _mark_colours(found: re.Match[str]) -> str:
    if found[0] == "\x00":
        return "\x01"
    return f"\x00{found[0][1:]}" if _SGR.fullmatch(found[0]) else ""


def printable(text: str) -> str:
    """A text of several lines, as `clean`; nothing is left out for a carriage return."""
    return _UNPRINTABLE.sub("", _CODES.sub("", text)) if _UNPRINTABLE.search(text) else text


def printable_json(text: str) -> str:
    """JSON whose texts have such characters as escapes: it means the same."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def join_partial(lines: Iterable[LogLine]) -> list[LogLine]:
    """Lines in order, the parts of a long one joined under the number of its last part; `first_seq` is that of its first."""
    joined: list[LogLine] = []
    for line in lines:
        last = joined[-1] if joined else None
        if last is not None and last.partial and (last.stream, last.token) == (line.stream, line.token):
            joined[-1] = replace(line, text=last.text + line.text, at=last.at, first_seq=last.first_seq or last.seq)
        else:
            joined.append(line)
    return joined
