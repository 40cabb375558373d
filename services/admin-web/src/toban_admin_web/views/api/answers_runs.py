"""Runs in answers of the API: fields as in proto/toban_proto/v1/coordinator.proto."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from toban_admin_web.views.api.answers import Answer, BigNumber, Page


class RunStep(Answer):
    """One step of a run or of an attempt."""

    id: str
    name: str
    state: str = Field(description="pending | running | succeeded | failed | skipped | cancelled")
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    signal: int | None
    seq_from: int = Field(
        description="Numbers of its first and last line of output in the log of the attempt; none when the last is lower."
    )
    seq_to: int
    number: int = Field(description="Its place in the definition, from 1.")


class Attempt(Answer):
    """One dispatch of a run."""

    token: BigNumber
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
    steps: list[RunStep] = Field(
        description="Steps that it has started, of a job that has more than one (state also: lost). Only in GetRun."
    )


class RunEvent(Answer):
    """One change of a run's state, or a note."""

    at: datetime | None
    type: str
    from_state: str
    to_state: str
    message: str
    actor: str


class ExternalClaim(Answer):
    """The offer of a step to external workers, and who has claimed it."""

    worker_type: str
    worker: str = Field(description="The worker that has claimed the step; empty = it is offered.")
    claimed_at: datetime | None
    locked_until: datetime | None


class Run(Answer):
    """One run. Lists leave attempts, events and what is marked "only in GetRun" empty."""

    id: int
    job: str
    definition_version: int
    schedule: str
    origin: str = Field(description="slot | demand | event | rerun")
    slot: datetime | None
    scheduled_for: datetime | None
    state: str
    attempt: int
    max_attempts: int
    lost_count: int
    token: BigNumber
    leader_epoch: BigNumber
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
    payload: Any
    log_ref: str
    cancel_reason: str
    created_by: str
    last_line: str
    version: int
    attempts: list[Attempt]
    events: list[RunEvent]
    rerun_of: int
    idempotency_key: str
    cancel_requested_at: datetime | None
    progress: Any = Field(description="{summary, percentage} as last reported by the job; empty when it reported none.")
    event_id: int
    trigger: str
    waiting: str = Field(description="Why a run that is not dispatched yet waits, one sentence. Only in GetRun.")
    continuation_state: str = Field(
        description="NONE | CONFIRMING: its executor asked whether the run may continue, and silence has no consequence "
        "before the deadline."
    )
    continuation_check_started_at: datetime | None
    continuation_check_deadline_at: datetime | None
    orphaned_until: datetime | None = Field(
        description="on_lease_loss continue: an ORPHANED run waits until then for its executor's report; unset = it does "
        "not wait."
    )
    scope: str
    scope_id: str
    deferred_on: str = Field(
        description="The limit that defers the run, such as job:etl or pool:licences; empty when none does."
    )
    result: Any = Field(description="What the job has given as its output (JSON); empty when it has not.")
    phase: str = Field(description="The step that runs or ran last, of a job that has more than one.")
    steps: list[RunStep] = Field(
        description="Of the last attempt of a job that has more than one step. Only in GetRun."
    )
    has_checkpoint: bool = Field(description="A live run has a checkpoint for its next attempt. Only in GetRun.")
    reruns: list[int] = Field(description="Runs that repeat this one, the oldest first. Only in GetRun.")
    after_run: int = Field(
        description="The run whose end started this one by a trigger, and how many such starts led to it."
    )
    chain_depth: int
    external: ExternalClaim | None = Field(
        description="Of a run in WAITING_WORKER, or one that is canceled there. Only in GetRun."
    )


class StartedRun(Answer):
    """A run that was asked for."""

    run_id: int
    created: bool = Field(description="False when the idempotency key matched an existing run.")


class SkippedRuns(Answer):
    """Runs that were left as they are, by reason."""

    code: str = Field(description="An error code.")
    message: str = Field(description="What the first one was refused for.")
    runs: int
    run_ids: list[int] = Field(description="At most 10 of them.")


class ChangedRuns(Answer):
    """One part of a change of many runs."""

    matched: int = Field(description="Runs of this part that the filter names and the person may see.")
    changed: int
    skipped: list[SkippedRuns]
    next_cursor: str = Field(description="More runs match: the next part begins at this cursor.")
    run_ids: list[int] = Field(description="The new runs, of RerunRuns.")


class RunPage(Page):
    """Runs, newest first."""

    runs: list[Run]


class StartedRuns(Answer):
    """The runs in the order of the request."""

    runs: list[StartedRun]


class ChangedRun(Answer):
    """A run after its change."""

    run: Run
