"""Log lines for display: without terminal codes, the parts of a long line joined."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from toban_admin_web.decide.view_models import LogLine

# CSI and OSC sequences, other two-byte escapes, then every control character but the tab.
_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """One line without terminal codes, control characters and changes of writing direction.

    Of a line that was overwritten (carriage returns) the last version stays.
    """
    text = _CODES.sub("", text).rstrip("\r")
    return _CONTROL.sub("", text.rpartition("\r")[2])


def join_partial(lines: Iterable[LogLine]) -> list[LogLine]:
    """Lines in order, the parts of a long one joined under the number of its last part."""
    joined: list[LogLine] = []
    for line in lines:
        last = joined[-1] if joined else None
        if last is not None and last.partial and (last.stream, last.token) == (line.stream, line.token):
            joined[-1] = replace(line, text=last.text + line.text, at=last.at)
        else:
            joined.append(line)
    return joined
