"""`concurrency:` of a job: what a new run does while others are live, and how many may be (docs/limits.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from toban_domain.concurrency import SCOPE_KEYS, BreakerSpec, ConcurrencySpec, StartRate
from toban_domain.nearest import suggestion
from toban_domain.payload import kind_of
from toban_manifests.section import Reading, Section, key, part, problem, raise_problems
from toban_manifests.templates import payload_keys
from toban_manifests.values import DAY, NAME, Text

_MAX_LIMIT = 1_000_000
_MAX_KEYS = 10
_MAX_POOLS = 8
_MAX_KEY = 128


def _read_keys(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise problem(f"must be a list of names, is {kind_of(value)}", "write [scope_id, target]")
    raise_problems(_key_problems(value))
    return tuple(value)


def _key_problems(names: list[Any]) -> Iterator[PydanticCustomError]:
    if len(names) > _MAX_KEYS or len(set(map(str, names))) < len(names):
        yield problem(f"has {len(names)} names", f"use at most {_MAX_KEYS}, each once")
    for index, name in enumerate(names):
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_KEY or "\0" in name:
            hint = f"write scope, scope_id, or a top-level key of the payload, at most {_MAX_KEY} characters"
            yield problem("is not a name", hint, below=f"[{index}]")
            return


def _read_pools(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise problem(f"must be a mapping, is {kind_of(value)}", "write {licences: 1}: pool and how much a run takes")
    raise_problems(_pool_problems(value))
    return dict(value)


def _pool_problems(pools: Mapping[Any, Any]) -> Iterator[PydanticCustomError]:
    if len(pools) > _MAX_POOLS:
        yield problem(f"has {len(pools)} pools", f"use at most {_MAX_POOLS}")
    for name, weight in pools.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            yield problem(f"{str(name)[:60]!r} is not a name of a pool", "use a-z, 0-9, '.', '_', '-'")
        elif isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= _MAX_LIMIT:
            yield problem(f"is {weight!r}", f"use a whole number, 1 … {_MAX_LIMIT}", below=f".{name}")


class Rate(Section):
    """How many runs may start within a time."""

    MEANT = {"limit": "runs", "seconds": "per_seconds", "per": "per_seconds"}

    runs: int = key(0, "starts in any `per_seconds`, retries included; 0 = no limit", 10, ge=0, le=10_000)
    per_seconds: int = key(60, "the time that is looked at", 60, ge=1, le=DAY)


class Breaker(Section):
    """Stops a job whose runs fail."""

    MEANT = {"ratio": "failure_ratio", "window": "window_seconds", "min": "min_runs"}

    failure_ratio: float = key(
        0.0, "part of the ended runs that failed or timed out at which nothing starts; 0 = no breaker", 0.5, ge=0, le=1
    )
    min_runs: int = key(10, "ended runs that it takes", 10, ge=1, le=1000)
    window_seconds: int = key(300, "the time that is looked at", 300, ge=10, le=DAY)
    open_seconds: int = key(60, "how long nothing starts before one run probes", 60, ge=1, le=DAY)


class Concurrency(Section):
    """Runs at the same time."""

    MEANT = {"max": "limit", "keys": "dedupe_keys", "pool": "pools", "rate": "start_rate", "key": "limit_key"}

    policy: Literal["allow", "forbid", "replace", "queue", "reject_same_scope"] | None = key(
        None,
        "what a new run does while another of the same schedule, or of the same `dedupe_keys`, is live",
        "queue",
        unset="forbid for slots, allow on demand and for events",
    )
    dedupe_keys: Annotated[
        tuple[str, ...],
        PlainValidator(_read_keys),
        WithJsonSchema(
            {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": _MAX_KEY},
                "minItems": 1,
                "maxItems": _MAX_KEYS,
            }
        ),
    ] = key(
        (),
        "the policy is about runs with equal values of these: `scope`, `scope_id`, or top-level keys of the payload",
        ["scope_id", "target"],
        type_name="list of names",
        unset="the runs of one schedule",
    )
    limit: int = key(0, "live runs of the job; 0 = no limit, −1 = nothing starts", 3, ge=-1, le=_MAX_LIMIT)
    limit_key: Text = key("", "top-level key of the payload for `limit_per_key`", "customer", unset="none")
    limit_per_key: int = key(0, "live runs with the same value of `limit_key`; 0 = no limit", 1, ge=0, le=_MAX_LIMIT)
    pools: Annotated[
        dict[str, int],
        PlainValidator(_read_pools),
        WithJsonSchema(
            {
                "type": "object",
                "propertyNames": {"pattern": f"^{NAME.pattern}$"},
                "additionalProperties": {"type": "integer", "minimum": 1, "maximum": _MAX_LIMIT},
                "maxProperties": _MAX_POOLS,
            }
        ),
    ] = key(
        {},
        "what a run takes of pools that jobs share; `toban limit set pool:NAME SIZE` makes a pool",
        {"licences": 1},
        type_name="pool to weight",
        unset="none",
    )
    start_rate: Rate = part(Rate, "how fast runs may start")
    breaker: Breaker = part(Breaker, "when failures stop the job")

    @classmethod
    def check_after(cls, given: dict[str, Any], wrong: set[str], reading: Reading) -> Iterator[PydanticCustomError]:  # noqa: ARG003
        """Keys that need each other."""
        policy = given.get("policy")
        if policy == "reject_same_scope" and not given.get("dedupe_keys"):
            yield problem(
                "reject_same_scope needs dedupe_keys", "add dedupe_keys: [scope_id], or another key", below=".policy"
            )
        if policy == "allow" and given.get("dedupe_keys"):
            yield problem("has no effect with policy allow", "take it out, or use another policy", below=".dedupe_keys")
        if wrong & {"limit_key", "limit_per_key"}:
            return
        if bool(given.get("limit_key")) != bool(given.get("limit_per_key")):
            lacks, has = ("limit_per_key", "limit_key") if given.get("limit_key") else ("limit_key", "limit_per_key")
            yield problem(f"needs {lacks}", f"add {lacks}, or take {has} out", below=f".{has}")

    def to_spec(self) -> ConcurrencySpec:
        """As the domain has it."""
        return ConcurrencySpec(
            policy=self.policy or "",
            dedupe_keys=self.dedupe_keys,
            limit=self.limit,
            limit_key=self.limit_key,
            limit_per_key=self.limit_per_key,
            pools=dict(self.pools),
            start_rate=StartRate(runs=self.start_rate.runs, per_seconds=self.start_rate.per_seconds),
            breaker=BreakerSpec(
                failure_ratio=self.breaker.failure_ratio,
                min_runs=self.breaker.min_runs,
                window_seconds=self.breaker.window_seconds,
                open_seconds=self.breaker.open_seconds,
            ),
        )


def payload_problems(job: Mapping[str, Any]) -> Iterator[PydanticCustomError]:
    """Mistakes between `concurrency` and the rest of a job, whose own values are sound."""
    given = job.get("concurrency") or {}
    cancel = job.get("cancel") or {}
    if given.get("policy") == "replace" and cancel.get("supported") is False:
        yield problem(
            "replace needs runs that can be cancelled",
            "take cancel.supported: false out, or use another policy",
            below=".concurrency.policy",
        )
    schema = job.get("payload_schema")
    if not isinstance(schema, Mapping):
        return
    known = payload_keys(job, schema)
    named = [("limit_key", given.get("limit_key") or "")]
    named += [(f"dedupe_keys[{index}]", name) for index, name in enumerate(given.get("dedupe_keys") or ())]
    for where, name in named:
        if name and name not in known and (where == "limit_key" or name not in SCOPE_KEYS):
            hint = suggestion(name, known, "add it to `properties` of payload_schema")
            yield problem(f"{name!r} is not in payload_schema", hint, below=f".concurrency.{where}")
