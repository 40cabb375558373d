"""Moves of runs: what the decisions plan and the store applies. Each move names the state and token that it expects to find.

A move whose expectation does not hold any more is not applied; the next look at the run decides again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from toban_domain.outcome import Outcome
from toban_domain.run import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """What a decision about a live run looks at. `token` and `incarnation` are None while no dispatch holds it."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """ASSIGNED → RUNNING; `at` is the executor's wall clock."""

    run_id: int
    token: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """live → terminal. `outcome` is what the attempt reported, None when nothing ran; `attempt_state` "" leaves the attempt row alone."""

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
class Release:
    """live → PENDING: a retry, a reassignment or a refused start. `attempt` and `lost_count` are the new values.

    `started_at`: when the attempt that ended had started, None when it never did.
    """

    run_id: int
    source: RunState
    token: int | None
    attempt: int
    lost_count: int
    delay_seconds: float = 0.0
    event: str
    message: str = ""
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """ASSIGNED | RUNNING → ORPHANED: the executor went away under the run."""

    run_id: int
    source: RunState
    token: int
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCancel:
    """ASSIGNED (sent) | RUNNING → CANCEL_REQUESTED."""

    run_id: int
    source: RunState
    token: int | None
    reason: str
    mode: str
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseAttempt:
    """The end of one dispatch whose run goes on: SUCCEEDED, FAILED, TIMED_OUT, CANCELED, REVOKED or LOST."""

    run_id: int
    token: int
    state: str
    reason: str = ""
    error_summary: str = ""
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """PENDING, or ASSIGNED and not sent → ASSIGNED and sent, under a new token."""

    run_id: int
    token: int
    incarnation: str
