"""Values that `logs.redact` of a job names, as readers see them: `***`. Who sends the mask back keeps the stored value.

A name hides the variable of `env` and every key of that name in a payload, at any depth.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from toban_domain.errors import ErrorCode, TobanError

MASK = "***"
# What may stand in clear: it is no secret, and shows that nothing is set.
_NOTHING: tuple[object, ...] = (None, "", [], {})


def masked(value: Any, names: Collection[str]) -> Any:
    """`value`, parsed JSON, with the mask in place of the values of these keys."""
    if isinstance(value, Mapping):
        return {
            key: MASK if key in names and item not in _NOTHING else masked(item, names) for key, item in value.items()
        }
    return [masked(item, names) for item in value] if isinstance(value, list) else value


def masked_text(text: str, names: Collection[str]) -> str:
    """As `masked`, of a JSON text; `{}` for one that cannot be masked, since it cannot be read."""
    return (
        _rewritten(text, lambda value: masked(value, names)) if any(_quoted(name) in text for name in names) else text
    )


def masked_definition(spec: Mapping[str, Any], names: Collection[str] = ()) -> dict[str, Any]:
    """The definition of a job (canonical JSON) without the values that it, or one of `names`, hides."""
    hidden = {*names, *redact_names(spec)}
    shown = {key: masked(spec[key], hidden) for key in ("env", "default_payload") if key in spec}
    return {**spec, **shown}


def masked_definition_text(text: str, names: Collection[str] = ()) -> str:
    """As `masked_definition`, of a JSON text."""
    return _rewritten(text, lambda spec: masked_definition(spec, names)) if names or '"redact"' in text else text


def masked_payload_of(spec: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The definition of a schedule or trigger without the values that its job hides."""
    return {**spec, "payload": masked(spec["payload"], names)} if "payload" in spec else dict(spec)


def masked_payload_text(text: str, names: Collection[str]) -> str:
    """As `masked_payload_of`, of a JSON text."""
    return _rewritten(text, lambda spec: masked_payload_of(spec, names)) if names else text


def redact_names(spec: Any) -> list[str]:
    """What a stored definition hides, readable or not."""
    logs = spec.get("logs") if isinstance(spec, Mapping) else None
    names = logs.get("redact") if isinstance(logs, Mapping) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def unmasked(given: Any, stored: Any, names: Collection[str], hidden: Collection[str], path: str) -> Any:
    """`given` with the values of `stored` in place of masks: of keys that `names` hides from now on, and `hidden` hid until now.

    Raises PAYLOAD_INVALID for a mask that stands for no such value; `path` is where `given` is. An item of a list is known by its
    place and all that it shows.
    """
    if isinstance(given, list):
        older = stored if isinstance(stored, list) else []
        return [
            unmasked(item, _same_item(item, older, at, hidden), names, hidden, f"{path}[{at}]")
            for at, item in enumerate(given)
        ]
    if not isinstance(given, Mapping):
        return given
    known = stored if isinstance(stored, Mapping) else {}
    return {
        key: _kept(key, known, names, hidden, f"{path}.{key}")
        if item == MASK and (key in names or key in hidden)
        else unmasked(item, known.get(key), names, hidden, f"{path}.{key}")
        for key, item in given.items()
    }


def _kept(key: str, known: Mapping[str, Any], names: Collection[str], hidden: Collection[str], path: str) -> Any:
    if key not in names:
        why, hint = "logs.redact does not name it any more", f"keep {key!r} in logs.redact, or write the value"
    elif key not in hidden or known.get(key) in _NOTHING:
        why, hint = "there is no such value stored here", "write the value itself"
    else:
        return known[key]
    message = f"{path}: {MASK} stands for a value that is not shown, and {why}; {hint}"
    raise TobanError(ErrorCode.PAYLOAD_INVALID, message, detail={"path": path, "why": why, "hint": hint})


def _same_item(item: Any, older: list[Any], at: int, hidden: Collection[str]) -> Any:
    return older[at] if at < len(older) and masked(older[at], hidden) == item else None


def _rewritten(text: str, change: Callable[[Any], Any]) -> str:
    try:
        value = json.loads(text)
        return json.dumps(change(value) if isinstance(value, dict) else value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return "{}"


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
