"""Events emitted by applications, and triggers: which job an event starts, with which payload."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.fire_plan import RunTemplate
from toban_domain.job import compact
from toban_domain.run_end import EndedRun, RunEndSpec

# The same as the CHECK of scheduler.events.
EVENT_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
EVENT_TYPE_HINT = (
    "write something like order.paid: letters, digits and . _ : / - only, a letter or digit first, at most 128"
)
# Bytes in UTF-8.
MAX_KEY = 200


def check_event(event_type: str, dedupe_key: str) -> None:
    """Raises INVALID_ARGUMENT unless `event_type` and `dedupe_key` ("" = none) can be stored."""
    if not EVENT_TYPE.fullmatch(event_type):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"event_type {event_type[:60]!r} is not a type of event; {EVENT_TYPE_HINT}"
        )
    size = len(dedupe_key.encode("utf-8", "surrogatepass"))
    if size > MAX_KEY or "\0" in dedupe_key:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"dedupe_key has {size} bytes or a NUL character; use at most {MAX_KEY} bytes, or a hash of a longer key",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSpec:
    """A trigger: which events (type and filter) start which job; or with `on_run_end` which ends of runs do.

    `filter` maps paths into the event's payload to conditions (toban_domain.event_filter). `payload` is merged over the default
    payload of the job; its strings may refer to the event (toban_domain.event_mapping). A string instead of a mapping is one
    reference to a whole object.
    """

    name: str
    event_type: str
    job: str
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True
    filter: Mapping[str, Any] = field(default_factory=dict)
    payload: Mapping[str, Any] | str = field(default_factory=dict)
    on_run_end: RunEndSpec | None = None

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest and the name."""
        full = {
            "description": self.description,
            "labels": dict(self.labels),
            "enabled": self.enabled,
            "filter": dict(self.filter),
            "payload": self.payload if isinstance(self.payload, str) else dict(self.payload),
        }
        # Without a type of event an earlier version, which would start the job for any end, cannot read it.
        on = {"on_run_end": self.on_run_end.to_json()} if self.on_run_end else {"event_type": self.event_type}
        return {"name": self.name, **on, "job": self.job, **compact(full, _DEFAULTS)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TriggerSpec:
        """The inverse of to_json."""
        payload = data.get("payload", {})
        on_run_end = RunEndSpec.from_json(data["on_run_end"]) if "on_run_end" in data else None
        return cls(
            name=data["name"],
            event_type=on_run_end.event_type if on_run_end else data["event_type"],
            on_run_end=on_run_end,
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
    """An unprocessed event. `payload` is the stored JSON text; `key` "" = none.

    `tries` counts earlier attempts to process it; after those, `retry_triggers` are still to be evaluated, and the other triggers have
    started `runs` runs.
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
    # The end of a run as an event: that run, None once the history has dropped it.
    ended: EndedRun | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTrigger:
    """An enabled trigger with the current definition of its job. `spec` None: the stored spec is unreadable because of `broken`.

    `job_disabled_why`: by whom and why a person disabled the job, after the words "is disabled".
    """

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
    job_disabled_why: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """A run to be started for an event: its trigger and its template; for the end of a run that run, whose scope it gets."""

    trigger: DueTrigger
    template: RunTemplate
    ended: EndedRun | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A trigger that matches an event and cannot start its job. `final`: not retried. `defect`: an unexpected exception.
    `cut`: its chain of runs is too long."""

    trigger: DueTrigger
    message: str
    final: bool
    defect: Exception | None = None
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPlan:
    """The outcome of one event: started | no_trigger | duplicate | failed, or `retry` after `delay_seconds`.

    `keeps_key`: its deduplication key is stored. `later`: triggers whose runs did not fit into this transaction; they are retried.
    `tries` counts the attempts including this one.
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
        """Attempts so far. Continuing a split plan is not another attempt, so large plans do not use up the retries of failed triggers."""
        return max(1, self.event.tries) if self.later else self.event.tries + 1
