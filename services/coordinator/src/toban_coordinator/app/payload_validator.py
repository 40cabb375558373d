"""Payloads of new runs: laid over the default of the definition and checked against its schema, which is compiled once a version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachetools import LRUCache

from toban_coordinator.app.large_payload import PROCESS_WIDE, LargePayloads
from toban_domain.errors import TobanError
from toban_domain.job import JobSpec
from toban_domain.payload import check_payload
from toban_manifests.payload_schema import CHECKED_HERE, EXPLAINED_HERE, PayloadSchema

KEPT = 2_000

Key = tuple[int, int]


class PayloadValidator:
    """Merges and checks; keeps the compiled schemas of the versions used last. `hides_values`: no message has a value of a payload."""

    def __init__(self, large: LargePayloads | None = None, *, hides_values: bool = False) -> None:
        self._schemas: LRUCache[Key, PayloadSchema | TobanError | None] = LRUCache(KEPT)
        self._defaults: LRUCache[Key, str] = LRUCache(KEPT)
        self._hides_values = hides_values
        self._large = large or PROCESS_WIDE

    def make(self, key: Key, spec: JobSpec, given: Mapping[str, Any]) -> str:
        """The payload of one run as canonical JSON. Raises PAYLOAD_INVALID with its mistakes, PAYLOAD_TOO_LARGE, MANIFEST_INVALID when
        the stored schema is refused by this version, or CheckPending."""
        if not given and key in self._defaults:
            return self._defaults[key]
        merged = {**spec.default_payload, **given}
        text = check_payload(merged)
        schema = self._schema(key, spec)
        if schema is not None:
            self._check(schema, merged, text)
        if not given:
            self._defaults[key] = text
        return text

    def _check(self, schema: PayloadSchema, payload: Mapping[str, Any], text: str) -> None:
        steps = schema.steps(payload, len(text))
        if steps <= CHECKED_HERE and schema.is_valid(payload):
            return
        if steps <= EXPLAINED_HERE:
            raise schema.explain(payload, every=True)
        if (error := self._large.verdict(schema, payload, text)) is not None:
            raise error

    def _schema(self, key: Key, spec: JobSpec) -> PayloadSchema | None:
        if key not in self._schemas:
            self._schemas[key] = _compiled(spec, hides_values=self._hides_values)
        known = self._schemas[key]
        if isinstance(known, TobanError):
            raise known
        return known


def _compiled(spec: JobSpec, *, hides_values: bool) -> PayloadSchema | TobanError | None:
    """A schema that is refused is kept as its error: compiling it for every run costs more than the answer."""
    if spec.payload_schema is None:
        return None
    try:
        return PayloadSchema(spec.payload_schema, hides_values=hides_values or bool(spec.logs.redact))
    except TobanError as error:
        return error
