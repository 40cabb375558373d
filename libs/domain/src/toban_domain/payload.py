"""Payloads: JSON objects of at most 32 KiB, written one canonical way so that equal payloads are equal strings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toban_domain.errors import ErrorCode, TobanError

# Bytes of the canonical JSON in UTF-8.
PAYLOAD_LIMIT = 32 * 1024

_TYPE_NAMES = {dict: "an object", list: "a list", str: "text", bool: "true/false", int: "a number", float: "a number"}


def canonical_json(value: object) -> str:
    """The one way this product writes JSON that is compared, hashed or stored: sorted keys, no spaces, UTF-8, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def kind_of(value: object) -> str:
    """What a value is, in the words of a message."""
    return "nothing" if value is None else _TYPE_NAMES.get(type(value), type(value).__name__)


def parse_payload(text: str) -> dict[str, Any]:
    """The payload in `text` ("" = empty); raises PAYLOAD_INVALID unless it is one JSON object, PAYLOAD_TOO_LARGE above 32 KiB."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise TobanError(ErrorCode.PAYLOAD_INVALID, f"the payload is not JSON: {error}; give one JSON object") from None
    if not isinstance(value, dict):
        raise TobanError(
            ErrorCode.PAYLOAD_INVALID, f"the payload is {kind_of(value)}; give one JSON object, such as {{}}"
        )
    check_size(value)
    return value


def merge_payload(default: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` laid over the definition's default payload, key by key at the top; raises PAYLOAD_TOO_LARGE above 32 KiB."""
    merged = {**default, **given}
    check_size(merged)
    return merged


def check_size(payload: Mapping[str, Any]) -> None:
    """Raises PAYLOAD_TOO_LARGE when the canonical form of the payload is above the limit, PAYLOAD_INVALID when it cannot be stored."""
    try:
        size = len(canonical_json(payload).encode())
    except (ValueError, RecursionError) as error:
        raise TobanError(ErrorCode.PAYLOAD_INVALID, f"the payload cannot be written as JSON: {error}") from None
    if _has_nul(payload):
        raise TobanError(
            ErrorCode.PAYLOAD_INVALID, "the payload has a NUL character, which PostgreSQL cannot store; encode it"
        )
    if size > PAYLOAD_LIMIT:
        raise TobanError(
            ErrorCode.PAYLOAD_TOO_LARGE,
            f"the payload has {size} bytes, the limit is {PAYLOAD_LIMIT}; put the data into a file or a bucket and pass its name",
            detail={"size": size, "limit": PAYLOAD_LIMIT},
        )


def _has_nul(value: object) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, Mapping):
        return any(_has_nul(key) or _has_nul(item) for key, item in value.items())
    return isinstance(value, list | tuple) and any(_has_nul(item) for item in value)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
