"""Executors, the cluster, settings, secrets and the audit log in answers of the API."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from toban_admin_web.views.api.answers import Answer, BigNumber, Page


class Executor(Answer):
    """One incarnation of an executor."""

    worker_id: int
    incarnation: str
    instance: str
    node_id: str
    address: str
    state: str
    slots: int
    running: int
    labels: dict[str, str]
    last_heartbeat_at: datetime | None
    registered_at: datetime | None
    grant_seq: int
    lease_ms: int
    version: str
    off_reason: str
    drained: bool = Field(description="The drain state stored for this instance.")
    drain_reason: str
    clock_skew_seconds: float | None = Field(description="Its wall clock minus PostgreSQL's, as last reported.")
    disk_free_bytes: int
    certificate_not_after: datetime | None
    load: float
    group: str = Field(description="The group that its certificate names.")


class ExecutorGroup(Answer):
    """A group of executors."""

    name: str
    labels: dict[str, str] = Field(description="Labels that each of its executors has.")
    claims: list[str] = Field(description="Labels whose values an executor may choose; `*` = all.")
    job_labels: dict[str, str] = Field(description="Labels that a job must have to run there; empty = every job.")
    executors: int = Field(description="Executors that are not off.")
    instances: int = Field(description="Instances that belong to the group.")
    version: int
    updated_at: datetime | None
    updated_by: str


class Member(Answer):
    """One coordinator."""

    worker_id: int
    incarnation: str
    node_id: str
    address: str
    role: str = Field(description="leader | subleader | standby")
    last_heartbeat_at: datetime | None
    version: str
    status: str = Field(description="ok, stopped (by SIGTERM) or lost.")
    clock_skew_seconds: float | None
    certificate_not_after: datetime | None


class Cluster(Answer):
    """Leader, members and counts."""

    epoch: BigNumber
    leader_worker_id: int
    leader_address: str
    leader_since: datetime | None
    last_beat_at: datetime | None
    settled: bool
    coordinators: list[Member]
    executors: list[Executor]
    health: Any = Field(description="The same JSON as /healthz of the responding coordinator.")
    pending: int = Field(description="Due runs that wait for an executor.")
    running: int = Field(
        description="Runs that were sent to an executor and have not ended, also while their start is not confirmed or "
        "their cancel not proven."
    )
    server_time: datetime | None


class ActiveAlert(Answer):
    """An alert rule whose condition holds."""

    name: str = Field(description="As in the alert rules, for example TobanQueueOld.")
    severity: str = Field(description="critical | warning")
    value: float = Field(description="What the rule compares.")
    unit: str = Field(description="s, or empty for a count.")


class FailedRuns(Answer):
    """Runs of one job and scope that failed, timed out or expired."""

    job: str
    scope: str
    scope_id: str
    runs: int = Field(description="Counted up to 1000 of all jobs for each state.")
    last_run_id: int
    last_state: str
    last_finished_at: datetime | None
    error_summary: str
    reason: str
    recovered: bool = Field(description="A run of the job in this scope has succeeded since.")


class WaitingRuns(Answer):
    """Due runs that no executor holds."""

    kind: str = Field(description="What they wait for: executor | retry | limit | worker")
    runs: int
    oldest_seconds: float


class MissedSlots(Answer):
    """Slots of a schedule without a run of their time."""

    schedule: str
    outcome: str = Field(description="overdue | late | overlap | max_wait | catch_up | submit_failed")
    slots: int
    last_slot: datetime | None
    message: str
    run_id: int = Field(description="Of the latest slot; 0 when it got no run.")


class ComingFire(Answer):
    """The next slot of a schedule."""

    schedule: str
    job: str
    at: datetime | None
    timezone: str


class Overview(Answer):
    """What needs attention. Lists leave out what the person may not see; counts are those of the whole cluster."""

    server_time: datetime | None = Field(description="When it was read: up to two seconds ago.")
    alerts: list[ActiveAlert]
    failures: list[FailedRuns] = Field(description="Of the last 24 hours, the latest first; at most 50.")
    more_failures: bool
    waiting: list[WaitingRuns]
    missed: list[MissedSlots] = Field(description="Of the last 24 hours, the latest first; at most 50.")
    coming: list[ComingFire] = Field(description="Of the next 24 hours, the next first; at most 20.")
    coming_schedules: int = Field(description="Schedules that fire in the next 24 hours; counted up to 10000.")


class DiagnosisCheck(Answer):
    """One check."""

    name: str = Field(description="clock, certificate, version, migration, redis, disk, leader, ...")
    status: str = Field(description="ok | warning | error")
    subject: str = Field(description="The subject of the check: 'coordinator 3', 'executor 5 on host-a'.")
    value: str
    message: str
    remedy: str


class Diagnosis(Answer):
    """The health of the installation."""

    checks: list[DiagnosisCheck]
    server_time: datetime | None
    version: str


class Setting(Answer):
    """A cluster-wide setting."""

    name: str
    value: Any
    default: Any
    unit: str
    description: str
    version: int
    minimum: float
    maximum: float
    updated_at: datetime | None
    updated_by: str
    takes_effect: str = Field(description="When a change takes effect, and where.")


class Secret(Answer):
    """A secret without its value."""

    name: str
    key_id: str = Field(description="Which key of the key file encrypts it.")
    readable: bool = Field(description="The responding coordinator has that key.")
    jobs: list[str] = Field(description="Jobs that may use it; empty = all.")
    used_by: list[str] = Field(description="Jobs whose definition names it.")
    version: int
    created_at: datetime | None
    updated_at: datetime | None
    updated_by: str


class RotatedSecrets(Answer):
    """What the rotation did."""

    rotated: int = Field(description="How many were encrypted again, and the key that encrypts all of them now.")
    key_id: str
    unreadable: list[str] = Field(description="Secrets that no key of the file opens.")


class AuditEntry(Answer):
    """One change by a person or program."""

    id: int
    at: datetime | None
    actor: str
    action: str
    target: str
    before: Any
    after: Any
    reason: str
    address: str = Field(description="IP address of the client; empty for the cluster itself.")
    service: str = Field(description="The service whose certificate made the call.")
    seq: BigNumber = Field(description="Place in the hash chain; 0 = not chained yet.")
    hash: str


class AuditProblem(Answer):
    """What is wrong with the hash chain."""

    kind: str = Field(description="changed | removed | inserted")
    first_seq: BigNumber
    last_seq: BigNumber
    message: str


class AuditCheck(Answer):
    """What one part of the check has found."""

    problems: list[AuditProblem]
    rows: BigNumber = Field(description="Rows that this part checked.")
    next_cursor: str = Field(description="Of the next part; empty: this was the last one.")
    anchor: str = Field(description="SEQ:HASH of the row before the oldest one that is kept.")
    head: str = Field(
        description="SEQ:HASH of the newest row of the chain: note it outside, and give it as known_head."
    )
    unchained: BigNumber = Field(description="Rows that are not chained yet.")
    unchained_seconds: float = Field(description="Age of the oldest of them.")


class NewLeader(Answer):
    """The leader after the change."""

    new_epoch: BigNumber
    leader_worker_id: int = Field(description="The current leader.")
    leader_address: str


class AuditPage(Page):
    """Audit entries."""

    entries: list[AuditEntry]


class Executors(Answer):
    """Executors by number."""

    executors: list[Executor]


class ExecutorGroups(Answer):
    """Groups of executors by name."""

    groups: list[ExecutorGroup]


class Settings(Answer):
    """All settings."""

    settings: list[Setting]


class Secrets(Answer):
    """All secrets, without their values."""

    secrets: list[Secret]
