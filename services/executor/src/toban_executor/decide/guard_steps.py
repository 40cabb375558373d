"""The steps of an attempt in its guard: where it begins, the times that end a step, and what is known of those that have ended."""

from __future__ import annotations

import math

from toban_executor.decide.guard_types import AttemptStart, Spawn
from toban_executor.decide.models import StepEnd
from toban_executor.decide.slot_state import Attempt
from toban_fencing.executor_lease import Instant

REPORT_START_AFTER = 0.05
"""Seconds: the end of a shorter attempt implies its start, which halves the reports and the writes for short jobs."""


def begin(spawn: Spawn, now: Instant) -> Attempt:
    """The attempt of this order, at its first step."""
    step = spawn.order.steps[spawn.order.first_step]
    return Attempt(
        spawn=spawn,
        deadline=spawn.deadline,
        freeze_max=spawn.freeze_max,
        started=now,
        attempt_timeout_at=_timeout_at(now, spawn.order.timeout_seconds),
        step_timeout_at=_timeout_at(now, step.timeout_seconds),
        heartbeat_at=_timeout_at(now, step.heartbeat_seconds),
        step=spawn.order.first_step,
        step_started_wall=now.wall,
    )


def following(attempt: Attempt, now: Instant) -> Attempt:
    """At the next step."""
    step = attempt.spawn.order.steps[attempt.step + 1]
    return attempt._replace(
        step=attempt.step + 1,
        step_timeout_at=_timeout_at(now, step.timeout_seconds),
        heartbeat_at=_timeout_at(now, step.heartbeat_seconds),
        step_started_wall=now.wall,
        step_ends=ends(attempt, now),
        main=None,
        pid=0,
        kill_at=math.inf,
    )


def ends(attempt: Attempt, now: Instant) -> tuple[StepEnd, ...]:
    """Those that have ended, with the one that ends now if it has begun; a job of one step has none of its own."""
    main = attempt.main
    if len(attempt.spawn.order.steps) == 1:
        return ()
    if not attempt.pid and main is None:
        return attempt.step_ends
    end = StepEnd(
        step=attempt.step,
        started_ns=ns(attempt.step_started_wall),
        finished_ns=ns(attempt.main_ended_wall if main else now.wall),
        exit_code=main.exit_code if main else None,
        signal=main.signal if main else None,
    )
    return (*attempt.step_ends, end)


def may_start(attempt: Attempt, now: Instant) -> bool:
    """Whether a process may be started for the step that the attempt is at: nothing ends it, and it has a lease."""
    if not attempt.undecided or attempt.suspended:
        return False
    return attempt.continues or now.seconds_until(attempt.deadline) > 0


def lease_left(attempt: Attempt | None, now: Instant) -> float | None:
    """Seconds for which what the attempt has started elsewhere may go on, by the lease; None: it continues without one. 0 once it is ended."""
    if attempt is None or not attempt.undecided:
        return 0.0
    return None if attempt.continues else max(0.0, now.seconds_until(attempt.deadline))


def timeout(attempt: Attempt) -> float:
    """When the attempt, its step or the silence of the job has lasted too long."""
    return min(attempt.attempt_timeout_at, attempt.step_timeout_at, attempt.heartbeat_at)


def heartbeat(attempt: Attempt, now: Instant) -> Attempt:
    """The job has given a sign of life."""
    if attempt.heartbeat_at == math.inf:
        return attempt
    return attempt._replace(heartbeat_at=_timeout_at(now, attempt.spawn.order.steps[attempt.step].heartbeat_seconds))


def timeout_reason(attempt: Attempt) -> str:
    """Which time was exceeded."""
    order = attempt.spawn.order
    step = order.steps[attempt.step]
    if attempt.heartbeat_at < min(attempt.attempt_timeout_at, attempt.step_timeout_at):
        return f"gave no sign of life for heartbeat_seconds = {step.heartbeat_seconds:g}"
    if attempt.attempt_timeout_at <= attempt.step_timeout_at:
        return f"ran longer than timeout_seconds = {order.timeout_seconds:g}"
    return f"step {attempt.step + 1} ran longer than its timeout_seconds = {step.timeout_seconds:g}"


def start_due(attempt: Attempt) -> float:
    """When its start is to be reported, CLOCK_BOOTTIME: not before its process is there, which a zygote may have yet to fork."""
    if attempt.start_reported or not attempt.pid:
        return math.inf
    return attempt.started.boot + REPORT_START_AFTER


def began(attempt: Attempt) -> bool:
    """Whether a process of it has run."""
    return bool(attempt.pid or attempt.step_ends) or attempt.main is not None


def start_of(attempt: Attempt) -> AttemptStart:
    """The report of its start."""
    return AttemptStart(key=attempt.spawn.order.key, pid=attempt.pid, started_ns=ns(attempt.started.wall))


def ns(seconds: float) -> int:
    """Unix nanoseconds."""
    return int(seconds * 1e9)


def _timeout_at(now: Instant, seconds: float) -> float:
    return now.boot + seconds if seconds else math.inf
