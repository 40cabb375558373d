"""What the answers of executors to starts and cancels mean (docs/fencing.md 3.9)."""

from __future__ import annotations

from datetime import datetime

from toban_domain.outcome import Outcome, OutcomeKind, Reason
from toban_domain.run import RunState
from toban_domain.transitions import CloseAttempt, Finish, LiveRun, Release

# These say that the job cannot run as it is defined: the attempt failed. Every other refusal that means "gone" sends the run elsewhere.
JOB_FAULTS = frozenset(
    {
        "UNSUPPORTED_STEP",
        "PROGRAM_NOT_ALLOWED",
        "SPAWN_FAILED",
        "ORDER_INVALID",
        "SECRET_UNAVAILABLE",
        "TEMPLATE_INVALID",
    }
)
# Seconds before a refused run is placed again, so that a refusing executor does not make the loops spin.
REFUSED_DELAY_SECONDS = 0.2
FULL_DELAY_SECONDS = 0.02


def failed_start(refusal: str, message: str, now: datetime) -> Outcome:
    """The outcome of an attempt that could not start for a reason of the job."""
    return Outcome(
        kind=OutcomeKind.FAILED,
        reason=Reason.SPAWN_FAILED,
        error_summary=f"{refusal}: {message}" if message else refusal,
        started_at=None,
        finished_at=now,
    )


def refused(run: LiveRun, refusal: str, message: str) -> tuple[Release | Finish | None, CloseAttempt | None]:
    """A start that will never happen there: back to PENDING with the same attempt, or CANCELED when that was asked meanwhile."""
    if run.token is None:
        return None, None
    if run.state is RunState.CANCEL_REQUESTED:
        return never_started(run), None
    if run.state is not RunState.ASSIGNED:
        return None, None
    delay = FULL_DELAY_SECONDS if refusal == "NO_SLOT" else REFUSED_DELAY_SECONDS
    text = f"{refusal}: {message}" if message else refusal
    back = Release(
        run_id=run.id,
        source=run.state,
        token=run.token,
        attempt=run.attempt,
        lost_count=run.lost_count,
        delay_seconds=delay,
        event="refused",
        message=text,
    )
    return back, CloseAttempt(run_id=run.id, token=run.token, state="REVOKED", reason=refusal, error_summary=text)


def never_started(run: LiveRun) -> Finish:
    """CANCEL_REQUESTED → CANCELED: the executor promised that this attempt never runs there."""
    return Finish(
        run_id=run.id,
        source=RunState.CANCEL_REQUESTED,
        token=run.token,
        target=RunState.CANCELED,
        reason="canceled",
        message="its executor holds nothing of it",
        attempt_state="REVOKED",
    )
