"""The decisions of a guard about a cancel that leaves the job time (docs/jobs.md).

    running --cooperative--> told --the step ends--> ended: no step follows
                              \\-- grace --> SIGTERM --grace--> SIGKILL
    running, step not cancelable --cooperative or kill--> told --the step ends, or its timeout--> ended

A frozen job learns it when it runs again, which takes a grant. An operator's kill (`force`) waits for nothing. What the job ends with after it
was told counts as CANCELED, unless it finishes its last step.
"""

from __future__ import annotations

import math

from toban_executor.decide.guard_types import Cancel, Effect, NotifyCancel
from toban_executor.decide.slot_state import Attempt
from toban_fencing.executor_lease import Instant


def waits_for_job(attempt: Attempt, command: Cancel) -> bool:
    """True when this cancel does not end the tree at once."""
    if command.force:
        return False
    if not attempt.undecided:
        # It is being ended; a kill hurries that.
        return command.cooperative
    return command.cooperative or _step_is_protected(attempt)


def requested(attempt: Attempt, command: Cancel, now: Instant) -> tuple[Attempt, tuple[Effect, ...]]:
    """Remember the cancel and tell the job, once. Without effect on an attempt that is being ended."""
    if not attempt.undecided:
        return attempt, ()
    # A frozen job has its grace from the thaw on, which moves `cancel_at` by all the time in the freezer.
    begin = attempt.frozen_since if attempt.frozen_since is not None else now.boot
    cancel_at = math.inf if _step_is_protected(attempt) else begin + command.grace
    told = attempt.cancel is not None
    attempt = attempt._replace(cancel=attempt.cancel or command, cancel_at=min(attempt.cancel_at, cancel_at))
    return attempt, () if told else (NotifyCancel(command.reason),)


def ended_by_cancel(attempt: Attempt) -> Attempt:
    """The tree is empty: with the cause of its end when that is the cancel."""
    main, cancel = attempt.main, attempt.cancel
    if cancel is None or attempt.cause:
        return attempt
    if main is not None and main.exit_code == 0 and attempt.step + 1 >= len(attempt.spawn.order.steps):
        return attempt
    return attempt._replace(cause="cancel", reason=cancel.reason)


def _step_is_protected(attempt: Attempt) -> bool:
    return attempt.main is None and not attempt.spawn.order.steps[attempt.step].cancelable
