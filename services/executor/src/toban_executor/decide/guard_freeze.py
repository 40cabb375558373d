"""The decisions of a guard about an attempt whose lease has run out and that is frozen instead of killed (docs/fencing.md 3.7).

    running --deadline--> being frozen --no process runs--> frozen --grant that names it--> running
                               \\-- 0.2 s after the deadline, and after three checks, a process still runs: SIGKILL
                                                 frozen --fenced, canceled, or freeze_max seconds--> SIGKILL

One that the end of the lease kills is frozen too when only the wall clock says that the lease has ended: a step of that clock and a virtual
machine that was paused look the same. A grant lets it go on; without one it is killed when CLOCK_BOOTTIME says so.

Time in which it is frozen counts in no timeout. A tree that is frozen is checked again with every tick, since others may send SIGCONT.
"""

from __future__ import annotations

import math

from toban_executor.decide.guard_types import (
    CheckTree,
    Effect,
    FreezeTree,
    FreezeTurn,
    ReportFreeze,
    SetDeadline,
    ThawTree,
)
from toban_executor.decide.slot_state import Attempt
from toban_fencing.executor_lease import HOLD_MARGIN, TAKE_MARGIN, Instant

FREEZE_ALLOWANCE = 0.2
"""Seconds after the lease's deadline within which no process of the tree may run any more; the margin m is longer."""

FREEZE_CHECKS = 3
"""So many checks a tree gets before it is killed, on a machine that is too slow for them within the allowance."""

FREEZE_LATEST = HOLD_MARGIN + TAKE_MARGIN - 0.2
"""Seconds after the lease's deadline at which checking ends on every machine: SIGKILL has the rest until another execution may begin."""

KILL_ALLOWANCE = 0.05
"""Seconds before the lease's deadline at which SIGKILL goes out, so that nothing lives at the deadline."""

FREEZE_AGAIN = 0.01
"""Seconds between checks of a tree that is being frozen."""

Freezing = tuple[Attempt, tuple[Effect, ...]]


def freeze(attempt: Attempt, now: Instant) -> Freezing:
    """The deadline has passed, or the next check of a frozen tree is due."""
    if attempt.frozen_since is None:
        # What was stopped late, as this guard may have been itself, gets no more time; after a step of the wall clock the time begins now.
        by = min(attempt.deadline.boot, now.boot) + FREEZE_ALLOWANCE
        attempt = attempt._replace(frozen_since=now.boot, freeze_by=by, freeze_checks=0, freeze_reported=False)
    return attempt, (FreezeTree(),)


def checked(attempt: Attempt, frozen: bool, now: Instant) -> Freezing:
    """Counts one check of the tree; `frozen` = all of its processes were. `cannot_be_frozen` then decides whether the time is over."""
    if not frozen:
        by = now.boot + FREEZE_ALLOWANCE if attempt.freeze_by == math.inf else attempt.freeze_by
        return attempt._replace(freeze_by=by, freeze_checks=attempt.freeze_checks + 1), ()
    # One that others let go on has had its checks.
    attempt = attempt._replace(freeze_by=math.inf, freeze_checks=FREEZE_CHECKS)
    if attempt.freeze_reported:
        return attempt, ()
    return attempt._replace(freeze_reported=True), (_report(attempt, True, attempt.frozen_seconds, now),)


def cannot_be_frozen(attempt: Attempt, now: Instant) -> bool:
    """True when the last check has shown a process that runs, and the time to stop it is over."""
    return is_too_late(now.boot - (attempt.freeze_by - FREEZE_ALLOWANCE), checks=attempt.freeze_checks)


def is_too_late(late: float, *, checks: int) -> bool:
    """Whether a tree that runs on `late` seconds after the deadline, after so many checks, is to be killed: a slow machine has time for few."""
    return late >= FREEZE_LATEST or (late >= FREEZE_ALLOWANCE and checks >= FREEZE_CHECKS)


def is_doubtful(attempt: Attempt, now: Instant) -> bool:
    """Of a lease that is at its end: True when the wall clock alone says so, and CLOCK_BOOTTIME leaves time to ask for a grant before an
    attempt has to be ended."""
    return now.boot < _killed_at(attempt) - attempt.spawn.lease_grace


def _killed_at(attempt: Attempt) -> float:
    return attempt.deadline.boot - KILL_ALLOWANCE


def _ends_at(attempt: Attempt) -> float:
    """How long it may be frozen: one that the end of the lease kills, until CLOCK_BOOTTIME says that the lease has ended."""
    assert attempt.frozen_since is not None
    return attempt.frozen_since + attempt.freeze_max if attempt.freezes else _killed_at(attempt)


def is_over(attempt: Attempt, now: Instant) -> bool:
    """True when it has been frozen for as long as it may be."""
    return attempt.frozen_since is not None and now.boot >= _ends_at(attempt)


def next_check(attempt: Attempt, now: Instant, *, every: float) -> float:
    """When the next tick is needed at the latest, CLOCK_BOOTTIME; a frozen tree is checked `every` so many seconds."""
    assert attempt.frozen_since is not None
    if attempt.freeze_by < math.inf:
        return now.boot + FREEZE_AGAIN
    return min(now.boot + every, _ends_at(attempt))


def set_deadline(attempt: Attempt, command: SetDeadline, now: Instant) -> Freezing:
    """A grant. A frozen attempt goes on only if the granted heartbeat named it as frozen, and in the time of the lease."""
    attempt = attempt._replace(freeze_max=command.freeze_max)
    if not attempt.suspended:
        unknown = max(0.0, command.frozen_seconds - attempt.frozen_seconds) if attempt.undecided else 0.0
        return _shifted(attempt, unknown)._replace(deadline=command.deadline), ()
    if not command.thaw or now.seconds_until(command.deadline) <= 0:
        return attempt, ()
    attempt = thawed(attempt, now)._replace(deadline=command.deadline)
    return attempt, (ThawTree(), _report(attempt, False, attempt.frozen_seconds, now), CheckTree())


def thawed(attempt: Attempt, now: Instant) -> Attempt:
    """Running again: everything that was still to come moves by the time in which it was frozen."""
    assert attempt.frozen_since is not None
    frozen = max(0.0, now.boot - attempt.frozen_since)
    return _shifted(attempt, frozen)._replace(frozen_since=None, freeze_by=math.inf)


def _shifted(attempt: Attempt, seconds: float) -> Attempt:
    if not seconds:
        return attempt
    return attempt._replace(
        attempt_timeout_at=attempt.attempt_timeout_at + seconds,
        step_timeout_at=attempt.step_timeout_at + seconds,
        heartbeat_at=attempt.heartbeat_at + seconds,
        cancel_at=attempt.cancel_at + seconds,
        kill_at=attempt.kill_at + seconds,
        frozen_seconds=attempt.frozen_seconds + seconds,
    )


def _report(attempt: Attempt, frozen: bool, seconds: float, now: Instant) -> ReportFreeze:
    return ReportFreeze(
        FreezeTurn(key=attempt.spawn.order.key, frozen=frozen, seconds=seconds, at_ns=int(now.wall * 1e9))
    )
