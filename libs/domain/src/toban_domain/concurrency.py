"""What a job definition says of runs at the same time: the policy, the limits, and how runs are grouped for both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from toban_domain.payload import canonical_json

# How groups begin whose key is done for good when a run of it has SUCCEEDED: the statement that ends runs knows them by it.
ONCE = "once:"
POLICIES = ("allow", "forbid", "replace", "queue", "reject_same_scope")
# Values of dedupe_keys that name the run's scope; all others name top-level keys of its payload.
SCOPE_KEYS = ("scope", "scope_id")
# The scope of a run that names none.
DEFAULT_SCOPE = ("system", "")
SCOPES = ("system", "account", "user")
# Policies that start one run of a group at a time and let the others wait.
_SERIAL = frozenset({"replace", "queue"})
# Longer values are replaced by their hash.
_MAX_VALUE = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRate:
    """At most `runs` starts in any `per_seconds`; `runs` 0 = no limit."""

    runs: int = 0
    per_seconds: int = 60

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest."""
        return {"runs": self.runs, "per_seconds": self.per_seconds} if self.runs else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSpec:
    """Nothing starts for `open_seconds` once `failure_ratio` of at least `min_runs` runs of the last `window_seconds` failed; 0 = no breaker."""

    failure_ratio: float = 0.0
    min_runs: int = 10
    window_seconds: int = 300
    open_seconds: int = 60

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest."""
        return asdict(self) if self.failure_ratio else {}


@dataclass(frozen=True, slots=True)
class ConcurrencySpec:
    """`policy` "" = forbid for slots, else allow. `limit`: runs at a time, 0 = no limit, -1 = nothing starts; `limit_per_key`: of those whose
    payload has the same value of `limit_key`. `pools`: pool → how much of it a run takes."""

    policy: str = ""
    dedupe_keys: tuple[str, ...] = ()
    limit: int = 0
    limit_key: str = ""
    limit_per_key: int = 0
    pools: Mapping[str, int] = field(default_factory=dict)
    start_rate: StartRate = field(default_factory=StartRate)
    breaker: BreakerSpec = field(default_factory=BreakerSpec)
    # repeatable: false of the job; not part of the JSON of this section.
    once: bool = False

    def policy_for(self, origin: str) -> str:
        """The policy for runs of this origin (slot | demand | event | rerun)."""
        return self.policy or ("forbid" if origin == "slot" else "allow")

    @property
    def is_serial(self) -> bool:
        """Whether one run of a group runs at a time, and others wait."""
        return self.policy in _SERIAL

    @property
    def has_limits(self) -> bool:
        """Whether a run needs more than a slot of an executor."""
        return bool(self.limit or self.limit_per_key or self.pools or self.start_rate.runs) or self.is_serial

    @property
    def is_plain(self) -> bool:
        """Whether a run can start without a look at any other run: its group is none, and it has no limits."""
        return not self.has_limits and not self.dedupe_keys

    def group(
        self, payload: Mapping[str, Any] | str, *, scope: str, scope_id: str, schedule_id: int | None
    ) -> str | None:
        """The group of a run within its definition; None when the policy looks at the runs of its schedule alone, or at none."""
        if not self.dedupe_keys:
            if not self.is_serial:
                return None
            return "job" if schedule_id is None else f"schedule:{schedule_id}"
        values = json.loads(payload) if isinstance(payload, str) else payload
        known = {"scope": scope, "scope_id": scope_id}
        return (ONCE if self.once else "key:") + short(
            canonical_json([known[key] if key in known else values.get(key) for key in self.dedupe_keys])
        )

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest."""
        full: dict[str, Any] = {
            "policy": self.policy,
            "dedupe_keys": list(self.dedupe_keys),
            "limit": self.limit,
            "limit_key": self.limit_key,
            "limit_per_key": self.limit_per_key,
            "pools": dict(self.pools),
            "start_rate": self.start_rate.to_json(),
            "breaker": self.breaker.to_json(),
        }
        return {key: value for key, value in full.items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ConcurrencySpec:
        """The inverse of to_json."""
        rate = data.get("start_rate", {})
        return cls(
            policy=data.get("policy", ""),
            dedupe_keys=tuple(data.get("dedupe_keys", ())),
            limit=int(data.get("limit", 0)),
            limit_key=data.get("limit_key", ""),
            limit_per_key=int(data.get("limit_per_key", 0)),
            pools={name: int(weight) for name, weight in data.get("pools", {}).items()},
            start_rate=StartRate(runs=int(rate.get("runs", 0)), per_seconds=int(rate.get("per_seconds", 60))),
            breaker=BreakerSpec(**data.get("breaker", {})),
        )


def short(value: str) -> str:
    """The value itself, or its hash when it is long: it becomes part of a key that people read."""
    return value if len(value) <= _MAX_VALUE else hashlib.sha256(value.encode()).hexdigest()[:40]
