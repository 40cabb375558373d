"""Schedules as applied: job, rule and payload. `toban_schedule` computes the slots of a RuleSpec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from toban_domain.job import compact
from toban_domain.template import Context, expand, has_template, slot_values

# The keys of which a schedule has exactly one.
RULE_KEYS = ("interval_seconds", "every_n_minutes", "hourly_at_minute", "daily_at", "weekly_at", "cron")
CATCH_UP_POLICIES = ("all", "one", "skip")
DEFAULT_CATCH_UP_MAX = 100
ON_FAILURE = ("keep", "remove")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSpec:
    """When a schedule is due. Exactly one of `RULE_KEYS` is not None.

    `daily_at` is "HH:MM" or "HH:MM:SS", `weekly_at` is "mon,thu HH:MM", `cron` has 5 or 6 fields (seconds first) or is an alias such as
    @daily; `start` and `end` are ISO times with an offset ("" = open). `gap` (skip | shift | run_after) and `fold` (first | second | both)
    define the handling of local times that a DST change skips or repeats.
    """

    interval_seconds: int | None = None
    every_n_minutes: int | None = None
    hourly_at_minute: int | None = None
    daily_at: str | None = None
    weekly_at: str | None = None
    cron: str | None = None
    timezone: str = "UTC"
    gap: str = "shift"
    fold: str = "first"
    start: str = ""
    end: str = ""
    # Hashed to choose the value of H in `cron`: the schedule's name. Not part of the rule as written.
    seed: str = field(default="", compare=False)

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest."""
        out: dict[str, Any] = {key: getattr(self, key) for key in RULE_KEYS if getattr(self, key) is not None}
        full = {"timezone": self.timezone, "start": self.start, "end": self.end}
        out |= compact(full, {"timezone": "UTC", "start": "", "end": ""})
        dst = compact({"gap": self.gap, "fold": self.fold}, {"gap": "shift", "fold": "first"})
        return {**out, "dst": dst} if dst else out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RuleSpec:
        """The inverse of to_json; `data` may be a whole schedule's."""
        dst = data.get("dst", {})
        return cls(
            **{key: data.get(key) for key in RULE_KEYS},
            timezone=data.get("timezone", "UTC"),
            gap=dst.get("gap", "shift"),
            fold=dst.get("fold", "first"),
            start=data.get("start", ""),
            end=data.get("end", ""),
            seed=data.get("name", ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUpSpec:
    """Handling of slots that passed without a leader: all (the latest `max`; earlier ones are skipped) | one (the latest) | skip."""

    policy: str = "all"
    max: int = DEFAULT_CATCH_UP_MAX

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest."""
        return compact({"policy": self.policy, "max": self.max}, {"policy": "all", "max": DEFAULT_CATCH_UP_MAX})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CatchUpSpec:
        """The inverse of to_json; raises ValueError for a policy that this version does not know."""
        policy = data.get("policy", "all")
        if policy not in CATCH_UP_POLICIES:
            raise ValueError(f"catch_up.policy is {policy!r}; this version knows {', '.join(CATCH_UP_POLICIES)}")
        return cls(policy=policy, max=int(data.get("max", DEFAULT_CATCH_UP_MAX)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """A schedule: `payload` is merged over the default payload of the job; its texts may be templates (toban_domain.template.SCHEDULE)."""

    name: str
    job: str
    rule: RuleSpec
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True
    payload: Mapping[str, Any] = field(default_factory=dict)
    scope: str = "system"
    scope_id: str = ""
    catch_up: CatchUpSpec = field(default_factory=CatchUpSpec)
    # When its fires have failed for good: keep (status failed) | remove.
    on_failure: str = "keep"

    @property
    def has_template(self) -> bool:
        """Whether each slot has a payload of its own."""
        return bool(self.payload) and has_template(self.payload)

    def payload_at(self, slot: datetime) -> dict[str, Any]:
        """The payload of one slot. Raises PAYLOAD_INVALID for a reference to nothing."""
        if not self.has_template:
            return dict(self.payload)
        context = Context(plain={**slot_values(slot), "schedule.name": self.name})
        return {key: expand(item, context, f"payload.{key}") for key, item in self.payload.items()}

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest and the name."""
        full = {
            "description": self.description,
            "labels": dict(self.labels),
            "enabled": self.enabled,
            "payload": dict(self.payload),
            "scope": self.scope,
            "scope_id": self.scope_id,
            "catch_up": self.catch_up.to_json(),
            "on_failure": self.on_failure,
        }
        return {"name": self.name, "job": self.job, **self.rule.to_json(), **compact(full, _DEFAULTS)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ScheduleSpec:
        """The inverse of to_json; raises LookupError, TypeError, ValueError or AttributeError for what this version cannot read."""
        return cls(
            name=data["name"],
            job=data["job"],
            rule=RuleSpec.from_json(data),
            description=data.get("description", ""),
            labels=dict(data.get("labels", {})),
            enabled=bool(data.get("enabled", True)),
            payload=dict(data.get("payload", {})),
            scope=data.get("scope", "system"),
            scope_id=data.get("scope_id", ""),
            catch_up=CatchUpSpec.from_json(data.get("catch_up", {})),
            on_failure=_on_failure(data.get("on_failure", "keep")),
        )


def _on_failure(given: Any) -> str:
    if given not in ON_FAILURE:
        raise ValueError(f"on_failure is {given!r}; this version knows {', '.join(ON_FAILURE)}")
    return str(given)


_DEFAULTS: Mapping[str, Any] = {
    "description": "",
    "labels": {},
    "enabled": True,
    "payload": {},
    "scope": "system",
    "scope_id": "",
    "catch_up": {},
    "on_failure": "keep",
}
