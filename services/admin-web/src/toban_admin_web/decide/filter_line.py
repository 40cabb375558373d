"""The filters of the list of runs as one line: `state:failed job:nightly* label:team=data`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toban_admin_web.decide.filters import RunFilter, parse_filter
from toban_admin_web.decide.status_styles import STATE_GROUPS

KEYS = ("job", "schedule", "state", "executor", "origin", "scope", "label", "since", "until")
_PART = re.compile(r'([^\s:"]+):(?:"([^"]*)"|(\S+))(?=\s|$)|(\S+)')


@dataclass(frozen=True, slots=True)
class WrongPart:
    """What of a line cannot be used; `kind` names a text filter.line.KIND."""

    kind: str
    part: str
    key: str = ""


def parse_line(text: str) -> tuple[Mapping[str, str], Sequence[WrongPart]]:
    """The query of a URL for the parts of a line, and the parts that are left out."""
    query: dict[str, str] = {}
    wrong = []
    for key, quoted, plain, other in _PART.findall(text):
        key, value = key.lower(), quoted or plain
        if other or not value:
            wrong.append(WrongPart("no_key", other or f"{key}:"))
        elif key not in KEYS:
            wrong.append(WrongPart("unknown_key", f"{key}:{value}", key))
        elif key in query:
            wrong.append(WrongPart("twice", f"{key}:{value}", key))
        else:
            value = _state(value) if key == "state" else value
            if (key == "job" and "*" in value[:-1]) or not getattr(parse_filter({key: value}), key):
                wrong.append(WrongPart("wrong_value", f"{key}:{value}", key))
            else:
                query[key] = value
    return query, wrong


def line_of(filters: RunFilter) -> str:
    """The line that means these filters."""
    parts = []
    for key, value in filters.active():
        if key not in KEYS:
            continue
        text = value.lower() if key == "state" else value
        parts.append(f'{key}:"{text}"' if re.search(r"\s", text) else f"{key}:{text}")
    return " ".join(parts)


def _state(value: str) -> str:
    return value.lower() if value.lower() in STATE_GROUPS else value.upper()
