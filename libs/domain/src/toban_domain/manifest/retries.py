"""Reads `retry:` of a job."""

from __future__ import annotations

from collections.abc import Mapping

from toban_domain.manifest.fields import Fields
from toban_domain.payload import kind_of
from toban_domain.retry import ExponentialBackoff, RetrySpec

_MAX_RETRIES = 1000
_MAX_DELAY = 7 * 86_400.0


def read_retry(fields: Fields) -> RetrySpec:
    """How often and after how long a failed or timed-out run is tried again."""
    if fields.has("max_retries") and fields.has("max_attempts"):
        fields.bad("max_attempts", "is given together with max_retries", "keep one: max_attempts = max_retries + 1")
    retries = fields.integer("max_retries", 0, high=_MAX_RETRIES)
    attempts = fields.integer("max_attempts", 1, low=1, high=_MAX_RETRIES + 1)
    spec = RetrySpec(max_retries=retries or attempts - 1, backoff=_backoff(fields))
    fields.later("from")
    fields.done(backoff="backoff_seconds", retries="max_retries", attempts="max_attempts", delay="backoff_seconds")
    return spec


def _backoff(fields: Fields) -> tuple[float, ...] | ExponentialBackoff:
    value = fields.raw("backoff_seconds")
    if isinstance(value, Mapping):
        return _exponential(fields.below("backoff_seconds"))
    if value is None:
        return ()
    if not isinstance(value, list) or not value:
        fields.bad(
            "backoff_seconds",
            f"must be a list of seconds, is {kind_of(value)}",
            "write [1, 5, 30], or {initial: 1, multiplier: 2, max: 60, jitter: 0.1}",
        )
        return ()
    for index, item in enumerate(value):
        if isinstance(item, bool) or not isinstance(item, int | float) or not 0 <= item <= _MAX_DELAY:
            fields.bad(f"backoff_seconds[{index}]", f"is {item!r}", f"use seconds, 0 … {_MAX_DELAY:g}")
            return ()
    return tuple(float(item) for item in value)


def _exponential(fields: Fields) -> ExponentialBackoff:
    rule = ExponentialBackoff(
        initial=fields.number("initial", 1.0, high=_MAX_DELAY),
        multiplier=fields.number("multiplier", 2.0, low=1.0, high=100.0),
        maximum=fields.number("max", 3600.0, high=_MAX_DELAY),
        jitter=fields.number("jitter", 0.0, high=1.0),
    )
    fields.done(factor="multiplier", maximum="max")
    return rule
