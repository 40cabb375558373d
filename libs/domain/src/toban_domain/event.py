"""Events and their triggers: what an application says, and which job a trigger starts for it with which payload."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.fire_plan import RunTemplate
from toban_domain.job import compact

# The same as the CHECK of scheduler.events.
EVENT_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
EVENT_TYPE_HINT = (
    "write something like order.paid: letters, digits and . _ : / - only, a letter or digit first, at most 128"
)
# Bytes in UTF-8.
MAX_KEY = 200


def check_event(event_type: str, dedupe_key: str) -> None:
    """Raises INVALID_ARGUMENT unless type and key ("" = none) can be stored."""
    if not EVENT_TYPE.fullmatch(event_type):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"event_type {event_type[:60]!r} is not a type of event; {EVENT_TYPE_HINT}"
        )
    size = len(dedupe_key.encode("utf-8", "surrogatepass"))
    if size > MAX_KEY or "\0" in dedupe_key:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"dedupe_key has {size} bytes or a NUL character; use at most {MAX_KEY} bytes, of a long key a hash",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSpec:
    """A trigger: which events (type and filter) start which job.

    `filter` maps paths into the event's payload to conditions (toban_domain.event_filter). `payload` is laid over the default payload of the
    job; its texts may refer to the event (toban_domain.event_mapping); a text instead of a mapping is one reference to a whole object.
    """

    name: str
    event_type: str
    job: str
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True
    filter: Mapping[str, Any] = field(default_factory=dict)
    payload: Mapping[str, Any] | str = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The canonical form, in the words of the manifest, with the name inside."""
        full = {
            "description": self.description,
            "labels": dict(self.labels),
            "enabled": self.enabled,
            "filter": dict(self.filter),
            "payload": self.payload if isinstance(self.payload, str) else dict(self.payload),
        }
        return {"name": self.name, "event_type": self.event_type, "job": self.job, **compact(full, _DEFAULTS)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TriggerSpec:
        """The inverse of to_json."""
        payload = data.get("payload", {})
        return cls(
            name=data["name"],
            event_type=data["event_type"],
            job=data["job"],
            description=data.get("description", ""),
            labels=dict(data.get("labels", {})),
            enabled=bool(data.get("enabled", True)),
            filter=dict(data.get("filter", {})),
            payload=payload if isinstance(payload, str) else dict(payload),
        )


_DEFAULTS: Mapping[str, Any] = {"description": "", "labels": {}, "enabled": True, "filter": {}, "payload": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxEvent:
    """An event that is not processed yet. `payload` is JSON text as stored; `key` "" = none.

    `tries` were made before; then `retry_triggers` are the ones to try again, and `runs` the number of runs that the others got.
    """

    id: int
    type: str
    payload: str
    key: str
    created_at: datetime
    created_by: str
    tries: int = 0
    retry_triggers: tuple[str, ...] = ()
    runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTrigger:
    """An enabled trigger with the definition that it starts now. `spec` None: what is stored cannot be read, `broken` says why."""

    id: int
    name: str
    version: int
    event_type: str
    spec: TriggerSpec | None
    definition_id: int
    definition_version: int
    job: str
    job_enabled: bool
    last_error: str = ""
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """A run that an event starts: by which trigger, made from what."""

    trigger: DueTrigger
    template: RunTemplate


@dataclass(frozen=True, slots=True)
class Failure:
    """A trigger that fits an event and cannot start its job. `final`: another try would not help. `defect`: an unexpected error."""

    trigger: DueTrigger
    message: str
    final: bool
    defect: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPlan:
    """What becomes of one event: started | no_trigger | duplicate | failed, or `retry` after `delay_seconds`.

    `keeps_key`: from now on its key belongs to it. `later`: triggers whose runs did not fit into this write; they are tried again.
    `tries` are made by then, with this one.
    """

    event: InboxEvent
    outcome: str
    starts: tuple[Start, ...] = ()
    failures: tuple[Failure, ...] = ()
    message: str = ""
    delay_seconds: float = 0.0
    keeps_key: bool = False
    later: tuple[DueTrigger, ...] = ()

    @property
    def tries(self) -> int:
        """A plan that was cut is a try only as the first one: the triggers that fail keep theirs, however large the others' runs are."""
        return max(1, self.event.tries) if self.later else self.event.tries + 1
