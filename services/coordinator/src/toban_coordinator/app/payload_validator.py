"""Payloads of new runs: laid over the default of the definition and checked against its schema, which is compiled once a version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema_rs
from cachetools import LRUCache

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec
from toban_domain.nearest import nearest
from toban_domain.payload import check_payload

KEPT = 2_000
# Detail travels in gRPC metadata, which is bounded.
SHOWN_ERRORS = 8
SHOWN_CHARACTERS = 300

Key = tuple[int, int]


class PayloadValidator:
    """Merges and checks; keeps the compiled validators of the versions used last."""

    def __init__(self) -> None:
        self._validators: LRUCache[Key, jsonschema_rs.Draft202012Validator | None] = LRUCache(KEPT)
        self._defaults: LRUCache[Key, str] = LRUCache(KEPT)

    def make(self, key: Key, spec: JobSpec, given: Mapping[str, Any]) -> str:
        """The payload of one run as canonical JSON; raises PAYLOAD_INVALID with every mistake, or PAYLOAD_TOO_LARGE."""
        if not given and key in self._defaults:
            return self._defaults[key]
        merged = {**spec.default_payload, **given}
        text = check_payload(merged)
        validator = self._validator(key, spec)
        if validator is not None and not validator.is_valid(merged):
            raise _invalid(validator, spec.payload_schema or {}, merged)
        if not given:
            self._defaults[key] = text
        return text

    def _validator(self, key: Key, spec: JobSpec) -> jsonschema_rs.Draft202012Validator | None:
        if key not in self._validators:
            schema = spec.payload_schema
            self._validators[key] = None if schema is None else compile_schema(schema)
        return self._validators[key]


def compile_schema(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """The validator of a schema; raises MANIFEST_INVALID when it is not one, or points outside itself."""
    try:
        return jsonschema_rs.Draft202012Validator(dict(schema), validate_formats=True)
    except (ValueError, TypeError) as error:
        line = str(error).strip().splitlines()[0]
        raise TobanError(
            ErrorCode.MANIFEST_INVALID, f"spec.payload_schema: {line}; write a JSON Schema (2020-12)"
        ) from None


def _invalid(
    validator: jsonschema_rs.Draft202012Validator, schema: Mapping[str, Any], payload: Mapping[str, Any]
) -> TobanError:
    errors = [
        {
            "path": "payload" + "".join(_step(part) for part in error.instance_path),
            "message": _told(error, schema)[:SHOWN_CHARACTERS],
        }
        for error in validator.iter_errors(payload)
    ][:SHOWN_ERRORS]
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return TobanError(
        ErrorCode.PAYLOAD_INVALID,
        f"{first['path']}: {first['message']}{more}; see `payload_schema` of the job",
        detail={"errors": errors},
    )


def _told(error: jsonschema_rs.ValidationError, schema: Mapping[str, Any]) -> str:
    """The library's words; of keys that the schema does not have ours, which name the nearest, or those that it has."""
    kind = error.kind
    known = _keys(schema, error.schema_path)
    if known is None or not isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
        return error.message
    near = [nearest(key, known) for key in kind.unexpected]
    hint = f"did you mean {' and '.join(map(repr, near))}?" if all(near) else f"known are {', '.join(known) or 'none'}"
    names = " and ".join(map(repr, kind.unexpected))
    return f"{names} {'is not a known key' if len(kind.unexpected) == 1 else 'are not known keys'}; {hint}"


def _keys(schema: Any, path: Sequence[str | int]) -> list[str] | None:
    """The keys of the object whose keyword is at `path`; None when that is not within the schema as it is written."""
    try:
        for part in path[:-1]:
            schema = schema[part]
        return list(schema.get("properties", {}))
    except (LookupError, TypeError, AttributeError):
        return None


def _step(part: str | int) -> str:
    return f"[{part}]" if isinstance(part, int) else f".{part}"
