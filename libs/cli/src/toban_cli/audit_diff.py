"""What an operator changed, from the entry in the audit log: what was before beside what is after."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_NONE = "none"


def changes(before_json: str, after_json: str) -> str:
    """`status: active → paused, version: 1 → 2`; what is new without an arrow. "" when nothing is told.

    A key that is only in `before` is left out: entries do not always have the same keys on both sides. Within an object that is on both sides,
    such as a definition, a key that is gone counts as changed to none.
    """
    before, after = _read(before_json), _read(after_json)
    if not (before and after):
        return ", ".join(f"{path}: {_text(value)}" for path, value in _leaves("", before or after))
    parts = [
        f"{path}: {_text(value)}" for key in after if key not in before for path, value in _leaves(key, after[key])
    ]
    for key in after:
        if key in before:
            parts += _differing(key, before[key], after[key])
    return ", ".join(parts)


def _differing(path: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            yield from _differing(f"{path}.{key}", before.get(key), after.get(key))
    elif before != after:
        yield f"{path}: {_text(before)} → {_text(after)}"


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from _leaves(f"{path}.{key}" if path else key, part)
    elif value not in ({}, ""):
        yield path, value


def _text(value: Any) -> str:
    if value is None:
        return _NONE
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
