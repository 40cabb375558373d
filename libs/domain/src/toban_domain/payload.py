"""Payloads: JSON objects of at most 32 KiB in canonical form, so that equal payloads are equal strings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from toban_domain.errors import ErrorCode, TobanError

# Bytes of the canonical JSON in UTF-8.
PAYLOAD_LIMIT = 32 * 1024
# Nested objects and lists including the payload itself: below the limit of every JSON parser that reads payloads.
MAX_NESTING = 100

_TYPE_NAMES = {dict: "an object", list: "a list", str: "text", bool: "true/false", int: "a number", float: "a number"}
# An escaped NUL in canonical JSON: an odd number of backslashes before u0000.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def canonical_json(value: object) -> str:
    """Canonical JSON for comparing, hashing and storing: sorted keys, no spaces, UTF-8, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def kind_of(value: object) -> str:
    """The JSON type of a value, for messages."""
    return "nothing" if value is None else _TYPE_NAMES.get(type(value), type(value).__name__)


def parse_payload(text: str) -> dict[str, Any]:
    """The payload in `text` ("" = empty). Raises PAYLOAD_INVALID unless it is one JSON object, and what check_payload raises."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise TobanError(ErrorCode.PAYLOAD_INVALID, f"the payload is not JSON: {error}; give one JSON object") from None
    if not isinstance(value, dict):
        raise TobanError(
            ErrorCode.PAYLOAD_INVALID, f"the payload is {kind_of(value)}; give one JSON object, such as {{}}"
        )
    check_payload(value)
    return value


def merge_payload(default: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` merged over the definition's default payload by top-level key; raises what check_payload raises."""
    merged = {**default, **given}
    check_payload(merged)
    return merged


def check_payload(payload: Mapping[str, Any]) -> str:
    """The payload's canonical form. Raises PAYLOAD_TOO_LARGE above the limit, PAYLOAD_INVALID when it is nested too deeply or cannot be stored."""
    try:
        text = canonical_json(payload)
        size = len(text.encode())
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise TobanError(ErrorCode.PAYLOAD_INVALID, f"the payload cannot be written as JSON: {error}") from None
    if size > PAYLOAD_LIMIT:
        raise TobanError(
            ErrorCode.PAYLOAD_TOO_LARGE,
            f"the payload has {size} bytes, the limit is {PAYLOAD_LIMIT}; put the data into a file or a bucket and pass its name",
            detail={"size": size, "limit": PAYLOAD_LIMIT},
        )
    if deeper_than(payload, MAX_NESTING):
        raise _too_deep()
    if "\\u0000" in text and _NUL.search(text):
        raise TobanError(
            ErrorCode.PAYLOAD_INVALID, "the payload has a NUL character, which PostgreSQL cannot store; encode it"
        )
    return text


def deeper_than(value: Any, levels: int) -> bool:
    """Whether `value`, as parsed by json, is nested more than `levels` deep, so that recursion over it could fail."""
    level = [value] if isinstance(value, dict | list | tuple) else []
    for _ in range(levels):
        if not level:
            return False
        level = [
            item
            for one in level
            for item in (one.values() if isinstance(one, dict) else one)
            if isinstance(item, dict | list | tuple)
        ]
    return bool(level)


def _too_deep() -> TobanError:
    return TobanError(
        ErrorCode.PAYLOAD_INVALID,
        f"the payload has objects or lists more than {MAX_NESTING} levels deep; flatten it, or pass the inner part as a string",
        detail={"max_nesting": MAX_NESTING},
    )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
