"""Payload mappings of triggers: strings with references to the event.

`{{ event.payload.a.b }}`, `{{ event.payload }}`, `{{ event.type }}`, `{{ event.id }}`, `{{ event.dedupe_key }}`. A string that is
exactly one reference becomes the referenced value with its JSON type. Inside a longer string the value is inserted as text: strings
unchanged, null as an empty string, other values as JSON. Paths are those of filters. The key of an event without one is null.

A trigger on the end of a run refers to `{{ run.id }}`, `{{ result.a.b }}`, `{{ payload }}` in place of the event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event_filter import MISSING, split_path, value_at
from toban_domain.payload import canonical_json, kind_of
from toban_domain.run_end import ROOTS

# Bounds the result: each reference may insert a whole payload.
MAX_REFERENCES = 100
_MARK = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_WHOLE = re.compile(r"\s*\{\{([^{}]*)\}\}\s*")
_PAYLOAD = "event.payload"
_PLAIN = ("event.type", "event.id", "event.dedupe_key")
# One example of each kind of reference.
KNOWN = (*_PLAIN, _PAYLOAD, f"{_PAYLOAD}.a.b")
KNOWN_OF_RUN_END = ("run.id", "run.job", "run.state", "run.slot", "result", "result.a.b", "payload", "payload.a.b")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFacts:
    """The values that a mapping may refer to; `key` "" = the event has none. `of_run`: those of a run that has ended instead."""

    id: int
    type: str
    key: str
    payload: Mapping[str, Any]
    of_run: Mapping[str, Any] | None = None


def reference_problem(text: str, *, of_run: bool = False) -> tuple[str, str]:
    """The problem of the references in `text`, and the invalid name; both empty when the references are valid."""
    if "{{" in _MARK.sub("", text):
        return "has {{ without }}", ""
    for name in references(text):
        if of_run:
            if not split_path(name) or split_path(name)[0] not in ROOTS:
                return f"refers to {name!r}, which the end of a run does not have", name
            continue
        if name not in _PLAIN and name != _PAYLOAD and not _path(name):
            return f"refers to {name!r}, which an event does not have", name
    return "", ""


def whole_reference(text: str) -> str:
    """The referenced name when `text` is exactly one reference; else ""."""
    whole = _WHOLE.fullmatch(text)
    return whole[1].strip() if whole else ""


def passes_all_on(mapping: Mapping[str, Any] | str) -> bool:
    """Whether the mapping is the event's whole payload."""
    return isinstance(mapping, str) and whole_reference(mapping) == _PAYLOAD


def references(text: str) -> list[str]:
    """The names referenced in `text`, such as event.payload.order.id."""
    return [name.strip() for name in _MARK.findall(text)]


def texts_of(mapping: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Every string in a mapping, with its path: (".order.id", "{{ event.payload.id }}")."""
    if isinstance(mapping, str):
        yield at, mapping
    elif isinstance(mapping, Mapping):
        for key, item in mapping.items():
            yield from texts_of(item, f"{at}.{key}")
    elif isinstance(mapping, list):
        for index, item in enumerate(mapping):
            yield from texts_of(item, f"{at}[{index}]")


def fill(mapping: Mapping[str, Any] | str, event: EventFacts) -> dict[str, Any]:
    """The payload that `mapping` yields for `event`. Raises PAYLOAD_INVALID with the path and the missing value."""
    value = _filled(mapping, event, "payload")
    if not isinstance(value, dict):
        raise TobanError(ErrorCode.PAYLOAD_INVALID, f"payload: {mapping} is {kind_of(value)}, not an object")
    return value


def _filled(value: Any, event: EventFacts, at: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(item, event, f"{at}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, event, f"{at}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, str) or "{{" not in value:
        return value
    if name := whole_reference(value):
        return _lookup(name, event, at)
    return _MARK.sub(lambda match: _as_text(_lookup(match[1].strip(), event, at)), value)


def _lookup(name: str, event: EventFacts, at: str) -> Any:
    if event.of_run is not None:
        found = value_at(event.of_run, split_path(name))
        if found is MISSING:
            raise TobanError(ErrorCode.PAYLOAD_INVALID, f"{at}: the run that ended has no {name}")
        return found
    if name in _PLAIN:
        return {"event.type": event.type, "event.id": event.id, "event.dedupe_key": event.key or None}[name]
    found = value_at(event.payload, _path(name)) if name != _PAYLOAD else dict(event.payload)
    if found is MISSING:
        raise TobanError(ErrorCode.PAYLOAD_INVALID, f"{at}: the event has no {name.removeprefix('event.')}")
    return found


def _path(name: str) -> tuple[str, ...]:
    """The path inside the event's payload; empty when `name` is not such a path."""
    prefix, dot, path = name.partition(f"{_PAYLOAD}.")
    return split_path(path) if dot and not prefix else ()


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else canonical_json(value)
