"""Payloads from the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.payload import merge_payload, parse_payload


def build_payload(payload: str, params: Sequence[str]) -> dict[str, Any]:
    """`--payload` (JSON, or @file) overridden by each `--param`: `k=v` is text, `k:=v` is JSON. Raises PAYLOAD_*."""
    base = parse_payload(_content(payload))
    return merge_payload(base, dict(_param(text) for text in params))


def _content(payload: str) -> str:
    if not payload.startswith("@"):
        return payload
    path = Path(payload[1:])
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = (error.strerror or "no such file") if isinstance(error, OSError) else "it is not text in UTF-8"
        raise TobanError(
            ErrorCode.PAYLOAD_INVALID, f"--payload {payload} cannot be read ({why}); give a JSON file"
        ) from None


def _param(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.rstrip(":"):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"--param {text!r} is not name=value; write --param name=value, or name:=json for numbers",
        )
    if not name.endswith(":"):
        return name, value
    try:
        return name[:-1], json.loads(value)
    except (ValueError, RecursionError) as error:
        raise TobanError(
            ErrorCode.PAYLOAD_INVALID, f"--param {text!r}: the value is not JSON ({error}); write name=value for text"
        ) from None
