"""What answers contain. Each has `raw`, the whole JSON, where a newer site may have more than the fields here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, TypeVar, get_args

from toban.errors import RunFailedError

T = TypeVar("T", bound="Answer")
EndState = Literal["SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED", "SKIPPED", "EXPIRED"]
"""States that a run does not leave."""
LiveState = Literal["PENDING", "DEFERRED", "ASSIGNED", "RUNNING", "WAITING_WORKER", "CANCEL_REQUESTED", "ORPHANED"]
RunState = LiveState | EndState
"""States of a run (docs/run-states.md)."""
TERMINAL_STATES: frozenset[str] = frozenset(get_args(EndState))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An object of an answer."""

    raw: Mapping[str, Any] = field(repr=False, compare=False, default_factory=dict)

    @classmethod
    def from_json(cls: type[T], found: Mapping[str, Any]) -> T:
        """Takes the fields that this version knows; texts of times become datetimes with a zone."""
        parts = cls._parts(found)
        given = {
            name: (datetime.fromisoformat(value) if is_time and isinstance(value, str) else value)
            for name, is_time in _fields(cls)
            if (value := parts.get(name)) is not None
        }
        return cls(**given, raw=found)

    @classmethod
    def _parts(cls, found: Mapping[str, Any]) -> Mapping[str, Any]:
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Answer):
    """A run as it was when the answer was made. Times are None until they happen."""

    id: int
    job: str
    state: RunState
    attempt: int = 0
    max_attempts: int = 1
    schedule: str = ""
    origin: str = ""
    """slot | demand | event | rerun"""
    executor: str = ""
    scheduled_for: datetime | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    signal: int | None = None
    error_summary: str = ""
    reason: str = ""
    cancel_reason: str = ""
    waiting: str = ""
    """Why it waits, while it does."""
    payload: Any = None
    result: Any = None
    """What `toban.current_job().output` has set, or the function of a Python step has returned."""
    progress: Any = None
    last_line: str = ""
    idempotency_key: str = ""
    created_by: str = ""
    version: int = 0

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return self.state in TERMINAL_STATES

    @property
    def succeeded(self) -> bool:
        """Whether it has ended well."""
        return self.state == "SUCCEEDED"

    def check(self) -> Run:
        """This run. Raises RunFailedError when it ended in another state than SUCCEEDED."""
        if self.is_terminal and not self.succeeded:
            raise RunFailedError(self)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRun(Answer):
    """A run that was started, or that had been by a request with the same key (`created` is False)."""

    run_id: int
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition(Answer):
    """What `Client.apply` changes. `spec` is that of its manifest; keys that have their default are left out."""

    name: str
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def manifest(self) -> dict[str, Any]:
        """As `Client.apply` takes it: applied as it is, it changes nothing. Values of `logs.redact` are `***` in it: give them again."""
        metadata = {"name": self.name, "description": self.description, "labels": dict(self.labels)}
        return {
            "apiVersion": "toban/v1",
            "kind": type(self).__name__,
            "metadata": {key: value for key, value in metadata.items() if value},
            "spec": dict(self.spec),
        }

    @classmethod
    def _parts(cls, found: Mapping[str, Any]) -> Mapping[str, Any]:
        # The site stores metadata and spec in one mapping.
        stored = found.get("spec") or {}
        metadata = {key: stored.get(key) for key in ("description", "labels")}
        spec = {key: value for key, value in stored.items() if key not in ("name", *metadata)}
        return {**found, **metadata, "spec": spec}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Definition):
    """A job with its definition."""

    version: int
    enabled: bool
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Definition):
    """A schedule with its definition. `status` is active, paused or failed; `rule` is the rule as text."""

    job: str
    enabled: bool
    status: str
    rule: str = ""
    timezone: str = ""
    next_run_at: datetime | None = None
    last_run_at: datetime | None = None
    last_error: str = ""
    status_reason: str = ""
    paused_until: datetime | None = None
    version: int = 0
    updated_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTrigger(Definition):
    """A trigger with its definition. `event_type` is what it waits for, `last_error` why it last started no run."""

    job: str
    event_type: str
    enabled: bool
    version: int = 0
    updated_at: datetime | None = None
    last_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedManifest(Answer):
    """What applying one manifest did, or with `dry_run` would do: `action` is created, updated or unchanged."""

    kind: str
    name: str
    action: str
    version: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Answer):
    """An event. `outcome` is started, no_trigger, duplicate or failed, and empty until it is processed."""

    id: int
    event_type: str
    payload: Any = None
    dedupe_key: str = ""
    created_at: datetime | None = None
    processed_at: datetime | None = None
    outcome: str = ""
    run_ids: Sequence[int] = ()
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted(Answer):
    """An event that is stored. `duplicate`: another event of this type has or had its key; a hint, because the leader decides which one counts."""

    event_id: int
    duplicate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine(Answer):
    """A line of output. `token` is the fencing token of its attempt, `seq` counts the lines of an attempt from 1.

    `partial`: the line goes on in the next one of its stream, without a line break.
    """

    token: int
    seq: int
    stream: str
    text: str
    at: datetime | None = None
    partial: bool = False

    @property
    def position(self) -> str:
        """Where to resume: `runs.follow(run_id, after=line.position)` begins with the next line."""
        return f"{self.token}:{self.seq}"


def _fields(kind: type[Answer]) -> list[tuple[str, bool]]:
    return [(one.name, "datetime" in str(one.type)) for one in fields(kind) if one.name != "raw"]


def list_of(kind: type[T], name: str) -> Callable[[Mapping[str, Any]], list[T]]:
    """Reads the objects of a page."""
    return lambda found: [kind.from_json(one) for one in found[name]]
