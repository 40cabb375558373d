"""Payload mappings of triggers: texts that refer to the event.

`{{ event.payload.a.b }}`, `{{ event.payload }}`, `{{ event.type }}`, `{{ event.id }}`, `{{ event.dedupe_key }}`. A text that is one
reference and nothing else becomes the value itself with its JSON type; inside a longer text the value is written as text: texts as they
are, null as nothing, everything else as JSON. Paths are those of filters. An event without a key has null for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event_filter import MISSING, split_path, value_at
from toban_domain.payload import canonical_json, kind_of

# Each may be as large as a payload.
MAX_REFERENCES = 100
_MARK = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_WHOLE = re.compile(r"\s*\{\{([^{}]*)\}\}\s*")
_PAYLOAD = "event.payload"
_PLAIN = ("event.type", "event.id", "event.dedupe_key")
# Examples of all that there is.
KNOWN = (*_PLAIN, _PAYLOAD, f"{_PAYLOAD}.a.b")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFacts:
    """What a mapping may refer to; `key` "" = the event has none."""

    id: int
    type: str
    key: str
    payload: Mapping[str, Any]


def reference_problem(text: str) -> tuple[str, str]:
    """What is wrong with the references in `text`, and the name that is wrong; empty when nothing is."""
    if "{{" in _MARK.sub("", text):
        return "has {{ without }}", ""
    for name in references(text):
        if name not in _PLAIN and name != _PAYLOAD and not _path(name):
            return f"refers to {name!r}, which an event does not have", name
    return "", ""


def whole_reference(text: str) -> str:
    """The name when `text` is one reference and nothing else; "" when it is not."""
    whole = _WHOLE.fullmatch(text)
    return whole[1].strip() if whole else ""


def passes_all_on(mapping: Mapping[str, Any] | str) -> bool:
    """True when the mapping is the event's whole payload."""
    return isinstance(mapping, str) and whole_reference(mapping) == _PAYLOAD


def references(text: str) -> list[str]:
    """The names that `text` refers to, such as event.payload.order.id."""
    return [name.strip() for name in _MARK.findall(text)]


def texts_of(mapping: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a mapping, with its place below it: (".order.id", "{{ event.payload.id }}")."""
    if isinstance(mapping, str):
        yield at, mapping
    elif isinstance(mapping, Mapping):
        for key, item in mapping.items():
            yield from texts_of(item, f"{at}.{key}")
    elif isinstance(mapping, list):
        for index, item in enumerate(mapping):
            yield from texts_of(item, f"{at}[{index}]")


def fill(mapping: Mapping[str, Any] | str, event: EventFacts) -> dict[str, Any]:
    """The payload that `mapping` says for `event`. Raises PAYLOAD_INVALID naming the place and what the event lacks."""
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
    if name in _PLAIN:
        return {"event.type": event.type, "event.id": event.id, "event.dedupe_key": event.key or None}[name]
    found = value_at(event.payload, _path(name)) if name != _PAYLOAD else dict(event.payload)
    if found is MISSING:
        raise TobanError(ErrorCode.PAYLOAD_INVALID, f"{at}: the event has no {name.removeprefix('event.')}")
    return found


def _path(name: str) -> tuple[str, ...]:
    """The path below the event's payload; empty when `name` is not one."""
    prefix, dot, path = name.partition(f"{_PAYLOAD}.")
    return split_path(path) if dot and not prefix else ()


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else canonical_json(value)
