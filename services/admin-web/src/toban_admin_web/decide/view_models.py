"""View models: what the pages show of the messages in proto/toban_proto/v1, with the same field names.

Times are UTC, None when unset. Tokens and epochs are integers of up to 63 bits. docs/adr/0021-site-view-models-and-gunicorn.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Generic, TypeVar

from toban_fencing.operator import SeenLeader

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOf(Generic[T]):
    """One page of a list, and the cursor of the next page ("" = last page)."""

    items: tuple[T, ...]
    next_cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One change of a run's state."""

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
    executor: str
    dispatched_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    signal: int | None
    error_summary: str
    reason: str
    steps: tuple[RunStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep:
    """One step of a run or of an attempt; `number` counts from 1. Its lines of output are `seq_from` to `seq_to`, none when that is lower."""

    number: int
    id: str
    name: str
    state: str
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    signal: int | None
    seq_from: int
    seq_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run; attempts and events are empty in lists."""

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
    continuation_state: str
    continuation_check_started_at: datetime | None
    result_json: str
    phase: str
    steps: tuple[RunStep, ...]
    has_checkpoint: bool
    reruns: tuple[int, ...]
    after_run: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule of a job."""

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
    """A future slot of a schedule; `local` is in its own zone, `rule_note` names the clock-change rule that applied."""

    at: datetime | None
    local: str
    rule_note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NextSlots:
    """The next slots of a schedule. `clock_change`: the next change of the clocks that touches it, and what its rule does; "" = none."""

    slots: tuple[NextSlot, ...]
    clock_change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """The outcome of a due slot, or of consecutive slots."""

    first_slot: datetime | None
    slots: int
    outcome: str
    run_id: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job definition with its schedules and newest run."""

    name: str
    version: int
    enabled: bool
    description: str
    spec_json: str
    schedules: tuple[Schedule, ...]
    updated_at: datetime | None
    last_run: Run | None
    disabled_at: datetime | None
    disabled_by: str
    disabled_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobVersion:
    """A definition as it was at a version."""

    version: int
    spec_json: str
    created_at: datetime | None
    created_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDay:
    """How many runs of a job ended well, badly or otherwise on a day of UTC (2026-11-23); at most 100 of each are counted."""

    day: str
    succeeded: int
    failed: int
    other: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """One incarnation of an executor."""

    worker_id: int
    node_id: str
    address: str
    state: str
    slots: int
    running: int
    labels: Mapping[str, str]
    last_heartbeat_at: datetime | None
    version: str
    off_reason: str
    drained: bool
    drain_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One action of a person or a certificate. `seq` 0 = not in the hash chain yet."""

    id: int
    at: datetime | None
    actor: str
    action: str
    target: str
    before_json: str
    after_json: str
    reason: str
    address: str
    service: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Which actions; "" = any."""

    actor: str = ""
    action: str = ""
    target: str = ""
    address: str = ""
    cursor: str = ""

    def url_query(self) -> dict[str, str]:
        """These filters for a URL, from the first page on."""
        return {name: value for name, value in asdict(self).items() if value and name != "cursor"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One coordinator."""

    worker_id: int
    node_id: str
    address: str
    role: str
    last_heartbeat_at: datetime | None
    version: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Leader, members and counts; `health_json` comes from the coordinator that responded."""

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

    @property
    def leader(self) -> SeenLeader:
        """The leader that the page shows; an action on it names this epoch."""
        return SeenLeader(epoch=self.epoch, worker_id=self.leader_worker_id, address=self.leader_address)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of output. `stream` is stdout, stderr or system (written by the executor). `partial`: the stream's next line continues it.

    `level` is that of a structured line; "" for others. A line of `system` may count `dropped_lines`. Of joined parts `first_seq` is the number of
    the first; 0 for a line of one part.
    """

    token: int
    seq: int
    at: datetime | None
    stream: str
    text: str
    partial: bool
    level: str = ""
    dropped_lines: int = 0
    first_seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """Consecutive lines of one attempt; `at_end`: all attempts known so far are complete."""

    token: int
    lines: tuple[LogLine, ...]
    at_end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """How far a search is: up to this line of this run; the whole run when `token` is 0."""

    run: int
    token: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLines:
    """A part of a search: (run, line) of each hit. `cut`: there may be more behind `place`."""

    lines: Sequence[tuple[int, LogLine]]
    place: LogPlace | None
    cut: bool
    runs: int
    bytes: int
    expired_attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSession:
    """A session of the person; `current` is that of this request."""

    id: int
    address: str
    user_agent: str
    created_at: datetime | None
    last_used_at: datetime | None
    ends_at: datetime | None
    current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSelector:
    """Which jobs a token is for; empty = all."""

    job: str
    labels: Mapping[str, str]
    scope: str
    scope_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """An API token of the person."""

    id: int
    name: str
    role: str
    selector: AccessSelector | None
    ends_at: datetime | None
    last_used_at: datetime | None
    last_used_from: str
    revoked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Filters of a list of runs: empty means any. `cursor` comes from the previous page."""

    job: str = ""
    schedule: str = ""
    states: tuple[str, ...] = ()
    executor: str = ""
    origin: str = ""
    scope: str = ""
    scope_id: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    ahead: bool = False
    cursor: str = ""
    limit: int = 50
