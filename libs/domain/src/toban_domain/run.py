"""States of a run and the only table of its transitions; SQL guards and docs/run-states.md are generated from it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class RunState(StrEnum):
    """State of a run; `MEANING` describes each."""

    PENDING = "PENDING"
    DEFERRED = "DEFERRED"
    ASSIGNED = "ASSIGNED"
    RUNNING = "RUNNING"
    WAITING_WORKER = "WAITING_WORKER"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    ORPHANED = "ORPHANED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELED = "CANCELED"
    SKIPPED = "SKIPPED"
    EXPIRED = "EXPIRED"


ORIGINS = ("slot", "demand", "event", "rerun")
"""What a run can come from."""

_S = RunState
_RESULTS = frozenset({_S.SUCCEEDED, _S.FAILED, _S.TIMED_OUT})

TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    # ORPHANED: the result of the attempt that was lost arrives before another one is sent.
    _S.PENDING: frozenset(
        {_S.ASSIGNED, _S.DEFERRED, _S.WAITING_WORKER, _S.ORPHANED, _S.SKIPPED, _S.CANCELED, _S.EXPIRED, _S.TIMED_OUT}
    ),
    _S.DEFERRED: frozenset({_S.PENDING, _S.SKIPPED, _S.CANCELED, _S.EXPIRED}),
    # An outcome implies the start; CANCELED only before the dispatch.
    _S.ASSIGNED: _RESULTS | {_S.RUNNING, _S.CANCEL_REQUESTED, _S.CANCELED, _S.ORPHANED, _S.PENDING},
    # PENDING: a retry, or the next group of steps.
    _S.RUNNING: _RESULTS | {_S.CANCEL_REQUESTED, _S.ORPHANED, _S.PENDING},
    _S.WAITING_WORKER: _RESULTS | {_S.CANCEL_REQUESTED, _S.PENDING, _S.EXPIRED},
    _S.CANCEL_REQUESTED: _RESULTS | {_S.CANCELED},
    # The late outcome of the same token is accepted while the run is ORPHANED.
    _S.ORPHANED: _RESULTS | {_S.PENDING, _S.EXPIRED, _S.CANCELED},
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.TIMED_OUT: frozenset(),
    _S.CANCELED: frozenset(),
    _S.SKIPPED: frozenset(),
    _S.EXPIRED: frozenset(),
}

TERMINAL: frozenset[RunState] = frozenset(state for state, leaves in TRANSITIONS.items() if not leaves)
LIVE: frozenset[RunState] = frozenset(RunState) - TERMINAL
# A run that ended by itself, and not well. Values, since statements and messages take these.
FAILURES: tuple[str, ...] = (_S.FAILED.value, _S.TIMED_OUT.value, _S.EXPIRED.value)
# Assigned to an executor incarnation: (incarnation, token) are set.
HELD: frozenset[RunState] = frozenset({_S.ASSIGNED, _S.RUNNING, _S.CANCEL_REQUESTED})

MEANING: Mapping[RunState, str] = {
    _S.PENDING: "created and not yet assigned; also: waiting for its retry time or for its next group of steps",
    _S.DEFERRED: "held back by a concurrency limit, an open circuit breaker, or `replace` until the earlier run is confirmed dead",
    _S.ASSIGNED: "assigned to an executor; dispatched to it when dispatched_at is set",
    _S.RUNNING: "running on an executor",
    _S.WAITING_WORKER: "offered to, or claimed by, an external worker",
    _S.CANCEL_REQUESTED: "cancellation requested; ends when the process tree is confirmed empty, or with the attempt's outcome",
    _S.ORPHANED: "its executor was fenced; retried on another executor, or completed by the late outcome of the same token",
    _S.SUCCEEDED: "completed successfully",
    _S.FAILED: "failed with no retries left",
    _S.TIMED_OUT: "exceeded its timeout with no retries left",
    _S.CANCELED: "cancelled on request",
    _S.SKIPPED: "not started; the reason is recorded",
    _S.EXPIRED: "executor lost with no attempts left, or waited longer than max_wait_seconds",
}


def can_move(source: RunState, target: RunState) -> bool:
    """Whether TRANSITIONS allows source → target."""
    return target in TRANSITIONS[source]


def diagram() -> str:
    """The Mermaid state diagram of TRANSITIONS, for docs/run-states.md."""
    lines = ["stateDiagram-v2", "    [*] --> PENDING"]
    lines += [f"    {source} --> {target}" for source in RunState for target in RunState if can_move(source, target)]
    lines += [f"    {state} --> [*]" for state in RunState if state in TERMINAL]
    return "\n".join(lines)
