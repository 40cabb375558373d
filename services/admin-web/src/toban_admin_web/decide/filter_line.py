"""The filters of the list of runs as one line: `state:failed job:nightly* label:team=data`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.filters import RunFilter, parse_filter
from toban_admin_web.decide.status_styles import STATE_GROUPS
from toban_domain.run import ORIGINS, RunState

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


def suggested_parts(runs: Iterable[Run]) -> Sequence[str]:
    """Parts that a line may have: states, origins, and what the runs on the page have; without a value where there is nothing to choose from."""
    states = [*STATE_GROUPS, *(state.value.lower() for state in RunState)]
    values = {"state": states, "origin": ORIGINS} | {
        key: [value for run in runs if (value := getattr(run, key))] for key in ("job", "schedule", "executor")
    }
    return list(dict.fromkeys(f"{key}:{value}" for key in KEYS for value in values.get(key) or ("",)))


def _state(value: str) -> str:
    return value.lower() if value.lower() in STATE_GROUPS else value.upper()
