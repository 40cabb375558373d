"""Records of the pages: the messages of the coordinators and log-archivers without the protocol. Names are those of proto/toban_proto/v1.

Times are UTC, None when unset. Tokens and epochs are whole numbers of up to 63 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOf(Generic[T]):
    """One page of a list, and the cursor of the next one ("" = no more)."""

    items: tuple[T, ...]
    next_cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One change of a run."""

    at: datetime | None
    type: str
    from_state: str
    to_state: str
    message: str
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One dispatch of a run."""

    token: int
    attempt: int
    state: str
    worker_id: int
    executor: str
    dispatched_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    signal: int | None
    error_summary: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run; attempts and events only when it was asked for alone."""

    id: int
    job: str
    definition_version: int
    schedule: str
    origin: str
    slot: datetime | None
    scheduled_for: datetime | None
    state: str
    attempt: int
    max_attempts: int
    lost_count: int
    token: int
    leader_epoch: int
    worker_id: int
    executor: str
    created_at: datetime | None
    assigned_at: datetime | None
    dispatched_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    signal: int | None
    error_summary: str
    reason: str
    payload_json: str
    log_ref: str
    cancel_reason: str
    created_by: str
    last_line: str
    attempts: tuple[Attempt, ...]
    events: tuple[RunEvent, ...]
    rerun_of: int
    idempotency_key: str
    cancel_requested_at: datetime | None
    progress_json: str
    event_id: int
    trigger: str
    waiting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a job starts by itself."""

    name: str
    job: str
    enabled: bool
    status: str
    spec_json: str
    timezone: str
    rule: str
    next_run_at: datetime | None
    last_run_at: datetime | None
    last_error: str
    version: int
    status_reason: str
    status_actor: str
    description: str
    updated_at: datetime | None
    updated_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NextSlot:
    """One time at which a schedule will fire: also in its own zone, and which rule of clock changes acted."""

    at: datetime | None
    local: str
    rule_note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """What became of a due slot, or of a row of slots."""

    first_slot: datetime | None
    last_slot: datetime | None
    slots: int
    outcome: str
    run_id: int
    message: str
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A definition with its schedules and newest run."""

    name: str
    version: int
    enabled: bool
    description: str
    spec_json: str
    schedules: tuple[Schedule, ...]
    updated_at: datetime | None
    last_run: Run | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """One incarnation of an executor."""

    worker_id: int
    incarnation: str
    instance: str
    node_id: str
    address: str
    state: str
    slots: int
    running: int
    labels: Mapping[str, str]
    last_heartbeat_at: datetime | None
    registered_at: datetime | None
    lease_ms: int
    version: str
    off_reason: str
    drained: bool
    drain_reason: str
    clock_skew_seconds: float | None
    disk_free_bytes: int
    certificate_not_after: datetime | None
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One coordinator."""

    worker_id: int
    incarnation: str
    node_id: str
    address: str
    role: str
    last_heartbeat_at: datetime | None
    version: str
    status: str
    clock_skew_seconds: float | None
    certificate_not_after: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Who leads, who is there, what waits; `health_json` is that of the coordinator that answered."""

    epoch: int
    leader_worker_id: int
    leader_address: str
    leader_since: datetime | None
    last_beat_at: datetime | None
    settled: bool
    coordinators: tuple[Member, ...]
    executors: tuple[Executor, ...]
    health_json: str
    pending: int
    running: int
    server_time: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of output: `stream` is stdout, stderr or system (a marker of the executor). `partial`: the next line of the stream goes on with it."""

    token: int
    seq: int
    at: datetime | None
    stream: str
    text: str
    partial: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """Consecutive lines of one attempt; `at_end` says that all attempts known so far are complete."""

    token: int
    lines: tuple[LogLine, ...]
    at_end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs: empty means any. `cursor` is that of the page before."""

    job: str = ""
    schedule: str = ""
    states: tuple[str, ...] = ()
    ahead: bool = False
    cursor: str = ""
    limit: int = 50
