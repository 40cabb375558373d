"""What the leader does about attempts that PostgreSQL holds for an executor and that the executor does not hold (docs/fencing.md 3.5).

A missing name is only a hint: nothing moves before the executor itself says that the attempt never starts there (`gone`) or has ended
(`finished`), and its outcome had time to arrive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toban_domain.outcome import AttemptKey
from toban_domain.run import RunState
from toban_domain.transitions import CloseAttempt, Finish, LiveRun, Orphan

# A dispatch younger than this may not have reached its executor, seconds.
DISPATCH_SECONDS = 5.0
# Heartbeats in a row that do not name an attempt before its executor is asked.
HEARTBEATS = 2
# How long an outcome may take to arrive after the executor has said that its attempt has ended, seconds.
FINISHED_SECONDS = 10.0
# How long a refused outcome may stay in quarantine before its run ends without it, seconds.
QUARANTINE_SECONDS = 600.0
LOST_RESULT = "lost_result"
RESULT_REFUSED = "result_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresolved:
    """An attempt that `heartbeats` heartbeats in a row did not name, or named as quarantined, for `seconds`.

    `state` None: PostgreSQL does not hold it there any more.
    """

    key: AttemptKey
    state: RunState | None
    incarnation: str
    worker_id: int
    address: str
    quarantined: bool
    heartbeats: int
    seconds: float
    message: str = ""


@dataclass(slots=True)
class ReconcilePlan:
    """Attempts to ask for by Revoke, those whose result is lost or refused for good, and those that need nothing any more."""

    ask: list[Unresolved] = field(default_factory=list)
    lost: list[Unresolved] = field(default_factory=list)
    refused: list[Unresolved] = field(default_factory=list)
    done: list[AttemptKey] = field(default_factory=list)


def plan(noted: Sequence[Unresolved], ended: Mapping[AttemptKey, float], *, now: float) -> ReconcilePlan:
    """Decides about `noted`. `ended` is when executors first answered `finished`, in the seconds of `now`."""
    made = ReconcilePlan()
    for one in noted:
        if one.state is None:
            made.done.append(one.key)
        elif one.quarantined:
            if one.seconds >= QUARANTINE_SECONDS:
                made.refused.append(one)
        elif one.heartbeats >= HEARTBEATS:
            since = ended.get(one.key)
            if since is not None and now - since >= FINISHED_SECONDS:
                made.lost.append(one)
            elif since is None and one.state is not RunState.CANCEL_REQUESTED:
                # The executor is asked about cancels anyway.
                made.ask.append(one)
    return made


def lost_result(run: LiveRun, key: AttemptKey) -> tuple[Orphan | Finish | None, CloseAttempt | None]:
    """ASSIGNED | RUNNING → ORPHANED, CANCEL_REQUESTED → CANCELED: nothing of the attempt runs, by its executor's word, and no outcome is left."""
    if run.token != key.token:
        return None, None
    if run.state is RunState.CANCEL_REQUESTED:
        message = "its executor has ended it and holds no result"
        return _finish(run, key, RunState.CANCELED, reason="canceled", message=message, attempt_state="LOST"), None
    if run.state not in (RunState.ASSIGNED, RunState.RUNNING):
        return None, None
    message = f"{LOST_RESULT}: its executor has ended it and holds no result"
    return (
        Orphan(run_id=run.id, source=run.state, token=key.token, message=message),
        CloseAttempt(run_id=run.id, token=key.token, state="LOST", reason=LOST_RESULT),
    )


def result_refused(run: LiveRun, key: AttemptKey, message: str) -> Finish | None:
    """→ FAILED: the attempt has ended, and PostgreSQL has refused its outcome for QUARANTINE_SECONDS."""
    if run.token != key.token or run.state not in (RunState.ASSIGNED, RunState.RUNNING, RunState.CANCEL_REQUESTED):
        return None
    text = f"the result was refused for {QUARANTINE_SECONDS:g} s: {message}"
    return _finish(run, key, RunState.FAILED, reason=RESULT_REFUSED, message=text, attempt_state="FAILED", error=text)


def _finish(
    run: LiveRun, key: AttemptKey, target: RunState, *, reason: str, message: str, attempt_state: str, error: str = ""
) -> Finish:
    return Finish(
        run_id=run.id,
        source=run.state,
        token=key.token,
        target=target,
        reason=reason,
        error_summary=error,
        message=message,
        attempt_state=attempt_state,
    )
