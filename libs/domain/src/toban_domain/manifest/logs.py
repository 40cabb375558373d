"""Reads `logs:` of a job."""

from __future__ import annotations

from toban_domain.job import DEFAULT_LOG_LINES_PER_SECOND, DEFAULT_LOG_MB, LogSpec
from toban_domain.manifest.fields import Fields
from toban_domain.payload import kind_of

_MAX_NAMES = 100
_MAX_NAME = 128


def read_logs(fields: Fields) -> LogSpec:
    """How much of the output is kept, and whose values are masked in it."""
    spec = LogSpec(
        max_mb=fields.integer("max_mb", DEFAULT_LOG_MB, high=1 << 20),
        max_lines_per_second=fields.integer("max_lines_per_second", DEFAULT_LOG_LINES_PER_SECOND, high=10_000_000),
        redact=_redact(fields),
    )
    fields.done(max_bytes="max_mb", max_lines="max_lines_per_second", secrets="redact", mask="redact")
    return spec


def _redact(fields: Fields) -> tuple[str, ...]:
    value = fields.raw("redact")
    if value is None:
        return ()
    if not isinstance(value, list):
        fields.bad("redact", f"must be a list, is {kind_of(value)}", "write [NAME]: variables or keys of the payload")
        return ()
    if len(value) > _MAX_NAMES:
        fields.bad("redact", f"has {len(value)} names", f"use at most {_MAX_NAMES}")
    for index, name in enumerate(value):
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or "\0" in name:
            hint = f"write the name of a variable or of a key of the payload, at most {_MAX_NAME} characters"
            fields.bad(f"redact[{index}]", "is not a name", hint)
            return ()
    return tuple(dict.fromkeys(value))
