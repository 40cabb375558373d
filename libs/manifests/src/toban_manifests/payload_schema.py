"""A job's `payload_schema` or `result_schema`, compiled: it fetches nothing, and its patterns match in linear time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jsonschema_rs

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec
from toban_domain.nearest import nearest
from toban_domain.payload import canonical_json
from toban_manifests.problems import ManifestProblem
from toban_manifests.read import Manifest
from toban_manifests.schema_cost import SchemaCost

# Detail travels in gRPC metadata, which is bounded.
SHOWN_ERRORS = 8
SHOWN_CHARACTERS = 300
# Steps (subschemas applied × bytes of the payload) of a check in the event loop: a few milliseconds. Errors cost more than answers.
CHECKED_HERE = 1_000_000
EXPLAINED_HERE = 20_000
_REMEDY = "write a JSON Schema (2020-12), with patterns that RE2 knows"
_TYPES = "array, boolean, integer, null, number, object and string"


class PayloadSchema:
    """Raises MANIFEST_INVALID when it is no JSON Schema, refers to anything outside itself, or never ends.

    `subject` is what it describes: payload or result. `hides_values`: its messages name no value.
    """

    def __init__(self, schema: Mapping[str, Any], subject: str = "payload", *, hides_values: bool = False) -> None:
        self.source = schema
        self.subject = subject
        self.hides_values = hides_values
        cost = SchemaCost(schema)
        for problem in cost.problems:
            raise _refused(subject, problem.path, f"{problem.message}; {problem.remedy}")
        try:
            self._validator = jsonschema_rs.Draft202012Validator(
                dict(schema),
                validate_formats=True,
                retriever=_fetch_nothing,
                pattern_options=jsonschema_rs.RegexOptions(),
                mask="the value" if hides_values else None,
            )
        except jsonschema_rs.ValidationError as error:
            raise _refused(subject, _below(error.instance_path), _mistake(error)) from None
        except (ValueError, TypeError) as error:
            raise _refused(subject, "", f"{str(error).strip().splitlines()[0]}; {_REMEDY}") from None
        self.digest = hashlib.sha256(f"{subject} {hides_values} ".encode() + canonical_json(schema).encode()).digest()
        self._cost = cost
        self._steps: dict[int, int] = {}

    def steps(self, payload: Any, size: int) -> int:
        """An upper bound of the work of one check; `size` is that of the payload's JSON in characters."""
        depth = _depth(payload)
        if depth not in self._steps:
            self._steps[depth] = self._cost.steps(depth)
        return self._steps[depth] * size

    def is_valid(self, payload: Any) -> bool:
        """Whether it fits."""
        return self._validator.is_valid(payload)

    def explain(self, payload: Any, *, every: bool) -> TobanError:
        """PAYLOAD_INVALID with the first mistake, or with `every` one (the first eight in its detail). Not for a payload that fits."""
        found = list(self._validator.iter_errors(payload)) if every else [_first(self._validator, payload)]
        errors = [self._described(error) for error in found[:SHOWN_ERRORS]]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return TobanError(
            ErrorCode.PAYLOAD_INVALID,
            f"{errors[0]['path']}: {errors[0]['message']}{more}; see `{self.subject}_schema` of the job",
            detail={"errors": errors},
        )

    def _described(self, error: jsonschema_rs.ValidationError) -> dict[str, str]:
        return {"path": self.subject + _below(error.instance_path), "message": self._message(error)[:SHOWN_CHARACTERS]}

    def _message(self, error: jsonschema_rs.ValidationError) -> str:
        """The library's message; of keys that the schema does not have ours, which names the nearest, or those that it has."""
        kind = error.kind
        known = _keys(self.source, error.schema_path)
        if known is None or not isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
            return error.message
        near = [nearest(key, known) for key in kind.unexpected[:SHOWN_ERRORS]]
        hint = (
            f"did you mean {' and '.join(map(repr, near))}?" if all(near) else f"known are {', '.join(known) or 'none'}"
        )
        names = " and ".join(map(repr, kind.unexpected[:SHOWN_ERRORS]))
        return f"{names} {'is not a known key' if len(kind.unexpected) == 1 else 'are not known keys'}; {hint}"


def schema_problems(manifest: Manifest) -> list[ManifestProblem]:
    """What is wrong with the schemas of a job."""
    if not isinstance(manifest.spec, JobSpec):
        return []
    problems = []
    for subject, schema in (("payload", manifest.spec.payload_schema), ("result", manifest.spec.result_schema)):
        try:
            if schema is not None:
                PayloadSchema(schema, subject)
        except TobanError as error:
            problems.append(ManifestProblem(manifest.source, str(error.detail["path"]), str(error.detail["why"])))
    return problems


def _below(path: Sequence[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def _mistake(error: jsonschema_rs.ValidationError) -> str:
    """Of a schema; the library's message for a type that is unknown names keywords of the schema of schemas."""
    if error.instance_path[-1:] == ["type"] and isinstance(error.kind, jsonschema_rs.ValidationErrorKind.AnyOf):
        return f"{canonical_json(error.instance)} is no type; known are {_TYPES}"
    return f"{error.message[:SHOWN_CHARACTERS]}; {_REMEDY}"


def _first(validator: jsonschema_rs.Draft202012Validator, payload: Any) -> jsonschema_rs.ValidationError:
    try:
        validator.validate(payload)
    except jsonschema_rs.ValidationError as error:
        return error
    raise AssertionError("only called for a payload that does not fit")


def _refused(subject: str, path: str, why: str) -> TobanError:
    place = f"spec.{subject}_schema{path}"
    return TobanError(ErrorCode.MANIFEST_INVALID, f"{place}: {why}", detail={"path": place, "why": why})


def _fetch_nothing(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside of the schema, and nothing is fetched")


def _depth(value: Any) -> int:
    depth, level = 0, [value] if isinstance(value, Mapping | list) else []
    while level := [
        item
        for one in level
        for item in (one.values() if isinstance(one, Mapping) else one)
        if isinstance(item, Mapping | list)
    ]:
        depth += 1
    return depth + 1


def _keys(schema: Any, path: Sequence[str | int]) -> list[str] | None:
    """The keys of the object whose keyword is at `path`; None when that is not within the schema as it is written."""
    try:
        for part in path[:-1]:
            schema = schema[part]
        return list(schema.get("properties", {}))
    except (LookupError, TypeError, AttributeError):
        return None
