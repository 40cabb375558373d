"""What happens to runs that lost their executor, waited or ran for too long (docs/fencing.md 3.8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from toban_domain.job import JobSpec
from toban_domain.run import RunState
from toban_domain.transitions import CloseAttempt, Finish, LiveRun, Orphan, Release, RequestCancel

# How far beyond timeout and grace a run may be before the leader asks for its cancel; the executor itself enforces the timeout, seconds.
TIMEOUT_MARGIN_SECONDS = 60.0


@dataclass(slots=True)
class ReapPlan:
    """The moves of one turn."""

    orphans: list[Orphan] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    closes: list[CloseAttempt] = field(default_factory=list)
    cancels: list[RequestCancel] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Overdue:
    """A run that is RUNNING for longer than its timeout. `frozen_seconds` of that time do not count."""

    run: LiveRun
    started_at: datetime
    timeout_seconds: int
    frozen_seconds: float = 0.0


def orphaned(runs: Sequence[LiveRun]) -> ReapPlan:
    """ORPHANED → PENDING while losses are left, else EXPIRED. A lost attempt uses no retry."""
    made = ReapPlan()
    for run in runs:
        if run.state is not RunState.ORPHANED:
            continue
        if run.lost_count < run.max_lost:
            made.releases.append(
                Release(
                    run_id=run.id,
                    source=run.state,
                    token=run.token,
                    attempt=run.attempt,
                    lost_count=run.lost_count + 1,
                    event="reassigned",
                    message=f"executor lost, repeat {run.lost_count + 1} of {run.max_lost}",
                )
            )
        else:
            made.finishes.append(
                Finish(
                    run_id=run.id,
                    source=run.state,
                    token=run.token,
                    target=RunState.EXPIRED,
                    reason="lost",
                    error_summary=f"lost its executor {run.lost_count + 1} times, max_lost is {run.max_lost}",
                    message="executor lost, no repeat left",
                )
            )
    return made


def executor_off(runs: Sequence[LiveRun]) -> ReapPlan:
    """Runs held by an incarnation that is `off`: nothing of it runs there any more, which is also the proof of a cancel."""
    made = ReapPlan()
    for run in runs:
        if run.token is None:
            if run.state is RunState.ASSIGNED:
                made.releases.append(_unplaced(run))
        elif run.state is RunState.CANCEL_REQUESTED:
            made.finishes.append(
                Finish(
                    run_id=run.id,
                    source=run.state,
                    token=run.token,
                    target=RunState.CANCELED,
                    reason="canceled",
                    message="its executor is off",
                    attempt_state="LOST",
                )
            )
        elif run.state in (RunState.ASSIGNED, RunState.RUNNING):
            made.orphans.append(
                Orphan(run_id=run.id, source=run.state, token=run.token, message="its executor is off", may_run=True)
            )
            made.closes.append(CloseAttempt(run_id=run.id, token=run.token, state="LOST", reason="lease_lost"))
    return made


def _unplaced(run: LiveRun) -> Release:
    return Release(
        run_id=run.id,
        source=RunState.ASSIGNED,
        token=None,
        attempt=run.attempt,
        lost_count=run.lost_count,
        event="released",
        message="the executor that was named for it is gone",
    )


def overdue(run: Overdue, spec: JobSpec, now: datetime) -> RequestCancel | None:
    """RUNNING → CANCEL_REQUESTED when the executor has let the timeout pass by far."""
    limit = run.timeout_seconds + spec.cancel.grace_seconds + TIMEOUT_MARGIN_SECONDS
    if run.timeout_seconds <= 0 or now - run.started_at <= timedelta(seconds=limit + run.frozen_seconds):
        return None
    return RequestCancel(
        run_id=run.run.id,
        source=RunState.RUNNING,
        token=run.run.token,
        reason=f"runs for more than {limit:g} s, timeout {run.timeout_seconds} s",
        mode="kill",
        actor="leader",
    )


def waited_too_long(run_id: int, max_wait_seconds: float, source: RunState = RunState.PENDING) -> Finish:
    """PENDING | DEFERRED → EXPIRED."""
    return Finish(
        run_id=run_id,
        source=source,
        token=None,
        target=RunState.EXPIRED,
        reason="max_wait",
        message=f"waited longer than max_wait_seconds {max_wait_seconds:g}",
    )


def deferred_too_long(run_id: int, spec: JobSpec | None, *, started: bool, late_seconds: float) -> Finish:
    """DEFERRED → EXPIRED or SKIPPED, whichever bound of the definition passes first; a run that has started before is never late."""
    late = late_seconds if spec is None or spec.skip_late_after_seconds is None else float(spec.skip_late_after_seconds)
    wait = float(spec.max_wait_seconds) if spec is not None else 0.0
    if late > 0 and not started and (wait <= 0 or late < wait):
        return came_too_late(run_id, late, RunState.DEFERRED)
    return waited_too_long(run_id, wait, RunState.DEFERRED)


def came_too_late(run_id: int, limit_seconds: float, source: RunState = RunState.PENDING) -> Finish:
    """PENDING | DEFERRED → SKIPPED."""
    return Finish(
        run_id=run_id,
        source=source,
        token=None,
        target=RunState.SKIPPED,
        reason="late",
        message=f"later than the limit of {limit_seconds:g} s",
    )
