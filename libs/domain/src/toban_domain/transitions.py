"""Transitions of runs: planned by the decisions, applied by the store. Each names the state and token that it expects.

A transition whose expectation no longer holds is not applied; the next pass of the loop decides again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from toban_domain.outcome import Outcome
from toban_domain.run import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """Input of a decision about a live run. `token` and `incarnation` are None while it is not dispatched."""

    id: int
    state: RunState
    token: int | None
    incarnation: str | None
    attempt: int
    max_attempts: int
    lost_count: int
    max_lost: int
    definition_id: int
    definition_version: int
    started: bool = False
    # The step with which its dispatch begins.
    first_step: int = 0
    # The step with which the run goes on when its dispatch succeeds; None = that ends it.
    next_step: int | None = None
    # The external worker that has claimed its step.
    locked_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """ASSIGNED → RUNNING; `at` is the executor's wall clock."""

    run_id: int
    token: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """live → terminal. `outcome` is the attempt's, None when there was none; `attempt_state` "" leaves the attempt row unchanged."""

    run_id: int
    source: RunState
    token: int | None
    target: RunState
    reason: str = ""
    error_summary: str = ""
    message: str = ""
    actor: str = ""
    attempt_state: str = ""
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer:
    """PENDING → DEFERRED: `key` names the limit, `weight` how much of it the run needs. `wait_until` None = it may wait for ever."""

    run_id: int
    key: str
    weight: int
    wait_until: datetime | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """live → PENDING: a retry, a reassignment or a refused start. `attempt` and `lost_count` are the new values.

    `started_at`: start of the attempt that ended; None when it never started. `first_step`: index of the step to begin with; None = no change.
    `keeps_limits`: it goes on at once, and keeps what it takes of limits. `result_json`: what an external step gave, "" = no change.
    """

    run_id: int
    source: RunState
    token: int | None
    attempt: int
    lost_count: int
    first_step: int | None = None
    delay_seconds: float = 0.0
    event: str
    message: str = ""
    started_at: datetime | None = None
    keeps_limits: bool = False
    result_json: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """ASSIGNED | RUNNING → ORPHANED: the executor was lost. `may_run`: its processes may still run where the job says `on_lease_loss: continue`."""

    run_id: int
    source: RunState
    token: int
    message: str = ""
    may_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCancel:
    """ASSIGNED (dispatched) | RUNNING | WAITING_WORKER (claimed) → CANCEL_REQUESTED.

    `hold_seconds`: for how long a cancelled claim may still be extended; None = its worker is not told.
    """

    run_id: int
    source: RunState
    token: int | None
    reason: str
    mode: str
    actor: str
    hold_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseAttempt:
    """The end of an attempt whose run continues: SUCCEEDED, FAILED, TIMED_OUT, CANCELED, REVOKED or LOST."""

    run_id: int
    token: int
    state: str
    reason: str = ""
    error_summary: str = ""
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """PENDING, or ASSIGNED and not dispatched → ASSIGNED and dispatched, with a new token."""

    run_id: int
    token: int
    incarnation: str
    # The step with which the run goes on after this dispatch; None = it is the last.
    next_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What a run takes of the limit `key` from the moment at which it is sent."""

    key: str
    run_id: int
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """PENDING → WAITING_WORKER, with a new token. `phase` is the id of the step, "" for a job of one step."""

    run_id: int
    token: int
    worker_type: str
    next_step: int | None = None
    phase: str = ""
