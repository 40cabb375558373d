"""`retry:` of a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator
from pydantic_core import PydanticCustomError

from toban_domain.payload import kind_of
from toban_domain.retry import FAILED_STEP, ExponentialBackoff, RetrySpec
from toban_manifests.section import Section, key, problem

_MAX_RETRIES = 1000
_MAX_DELAY = 7 * 86_400.0


class Backoff(Section):
    """Waits that grow."""

    MEANT = {"factor": "multiplier", "maximum": "max"}

    initial: float = key(1.0, "wait before the first retry", 1, type_name="seconds", ge=0, le=_MAX_DELAY)
    multiplier: float = key(2.0, "by which each wait is longer than the one before", 2, ge=1.0, le=100.0)
    max: float = key(3600.0, "no wait is longer", 300, type_name="seconds", ge=0, le=_MAX_DELAY)
    jitter: float = key(
        0.0, "share of the delay by which it is spread, both ways", 0.2, type_name="0 … 1", ge=0, le=1.0
    )

    def to_spec(self) -> ExponentialBackoff:
        """As the domain has it."""
        return ExponentialBackoff(
            initial=self.initial, multiplier=self.multiplier, maximum=self.max, jitter=self.jitter
        )


def _read_backoff(value: Any) -> list[float] | Backoff:
    if isinstance(value, Mapping):
        return Backoff.model_validate(value)
    if not isinstance(value, list) or not value:
        raise problem(
            "is an empty list" if value == [] else f"must be a list of seconds, is {kind_of(value)}",
            "write [1, 5, 30], or {initial: 1, multiplier: 2, max: 60, jitter: 0.1}",
        )
    for index, item in enumerate(value):
        if isinstance(item, bool) or not isinstance(item, int | float) or not 0 <= item <= _MAX_DELAY:
            raise problem(f"is {item!r}", f"use seconds, 0 … {_MAX_DELAY:g}", below=f"[{index}]")
    return [float(item) for item in value]


_Seconds = Annotated[float, Field(ge=0, le=_MAX_DELAY)]


class Retry(Section):
    """How often and after how long a failed or timed-out run is tried again."""

    MEANT = {
        "backoff": "backoff_seconds",
        "retries": "max_retries",
        "attempts": "max_attempts",
        "delay": "backoff_seconds",
    }
    max_retries: int = key(
        0,
        "tries after the first; FAILED and TIMED_OUT use them up, the loss of an executor does not",
        2,
        ge=0,
        le=_MAX_RETRIES,
    )
    max_attempts: int = key(1, "the same, counted with the first; never both", 3, ge=1, le=_MAX_RETRIES + 1)
    backoff_seconds: Annotated[
        list[float] | Backoff | None,
        PlainValidator(_read_backoff, json_schema_input_type=list[_Seconds] | Backoff),
    ] = key(
        None,
        "wait before each retry; the last of a list repeats",
        [5, 60],
        type_name="list of seconds, or a mapping",
        unset="no wait",
    )

    from_step: Literal["first_step", "failed_step"] = key(
        "first_step",
        "where a retry begins: `failed_step` leaves out the steps that have succeeded; their files are gone, unless they put them elsewhere",
        "failed_step",
        alias="from",
    )

    @classmethod
    def check_before(cls, given: dict[str, Any]) -> Iterator[PydanticCustomError]:
        """Both ways to count the tries."""
        if "max_retries" in given and "max_attempts" in given:
            yield problem(
                "is given together with max_retries",
                "keep one: max_attempts = max_retries + 1",
                below=".max_attempts",
            )

    def to_spec(self) -> RetrySpec:
        """As the domain has it."""
        given = self.backoff_seconds
        return RetrySpec(
            max_retries=self.max_retries or self.max_attempts - 1,
            backoff=given.to_spec() if isinstance(given, Backoff) else tuple(given or ()),
            from_step=FAILED_STEP if self.from_step == FAILED_STEP else "",
        )
