"""States of a run and the only table of its transitions; SQL guards and docs/run-states.md are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class RunState(StrEnum):
    """Where a run stands. Meanings are in docs/run-states.md."""

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


_S = RunState
_RESULTS = frozenset({_S.SUCCEEDED, _S.FAILED, _S.TIMED_OUT})

TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    _S.PENDING: frozenset(
        {_S.ASSIGNED, _S.DEFERRED, _S.WAITING_WORKER, _S.SKIPPED, _S.CANCELED, _S.EXPIRED, _S.TIMED_OUT}
    ),
    _S.DEFERRED: frozenset({_S.PENDING, _S.SKIPPED, _S.CANCELED, _S.EXPIRED}),
    # An outcome implies the start; CANCELED only while not sent.
    _S.ASSIGNED: _RESULTS | {_S.RUNNING, _S.CANCEL_REQUESTED, _S.CANCELED, _S.ORPHANED, _S.PENDING},
    # PENDING: a retry, or the next stretch of steps.
    _S.RUNNING: _RESULTS | {_S.CANCEL_REQUESTED, _S.ORPHANED, _S.PENDING},
    _S.WAITING_WORKER: _RESULTS | {_S.CANCEL_REQUESTED, _S.PENDING, _S.EXPIRED},
    _S.CANCEL_REQUESTED: _RESULTS | {_S.CANCELED},
    # The late result of the same token is taken while the run is ORPHANED.
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
# Held by an executor incarnation: (incarnation, token) are set.
HELD: frozenset[RunState] = frozenset({_S.ASSIGNED, _S.RUNNING, _S.CANCEL_REQUESTED})

MEANING: Mapping[RunState, str] = {
    _S.PENDING: "created, not placed (also: waiting for its retry time or its next stretch of steps)",
    _S.DEFERRED: "held by a concurrency limit, an open breaker, or `replace` waiting for the old one's proof of death",
    _S.ASSIGNED: "placed on an executor; with dispatched_at also sent",
    _S.RUNNING: "live on an executor",
    _S.WAITING_WORKER: "offered to or held by an external worker",
    _S.CANCEL_REQUESTED: "asked to stop; ends with the word that the process tree is empty, or with its result",
    _S.ORPHANED: "its executor was fenced; goes on elsewhere, or takes the late result of the same token",
    _S.SUCCEEDED: "ended with success",
    _S.FAILED: "ended with an error and no retry left",
    _S.TIMED_OUT: "ran longer than its timeout and was killed",
    _S.CANCELED: "stopped on request",
    _S.SKIPPED: "never started, for a named reason",
    _S.EXPIRED: "lost with no try left, or waited longer than max_wait_seconds",
}


def can_move(source: RunState, target: RunState) -> bool:
    """True when TRANSITIONS allows source → target."""
    return target in TRANSITIONS[source]


def diagram() -> str:
    """The Mermaid state diagram of TRANSITIONS, for docs/run-states.md."""
    lines = ["stateDiagram-v2", "    [*] --> PENDING"]
    lines += [f"    {source} --> {target}" for source in RunState for target in RunState if can_move(source, target)]
    lines += [f"    {state} --> [*]" for state in RunState if state in TERMINAL]
    return "\n".join(lines)
