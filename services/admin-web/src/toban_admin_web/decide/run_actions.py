"""What a person can do with a run, by its state."""

from __future__ import annotations

from toban_admin_web.decide.api_models import Attempt, Run
from toban_admin_web.decide.status_styles import is_terminal
from toban_domain.access import Action
from toban_domain.run import RunState

ENDPOINTS = {
    "cancel": Action.CANCEL,
    "kill": Action.CANCEL,
    "declare_lost": Action.CANCEL,
    "rerun": Action.RUN,
    "note": Action.RUN,
}
"""Action of the page (its view is run_actions.NAME) → what a person must be allowed."""

DISPATCH_NAMES = ("dispatch.attempt", "dispatch.number")


def run_actions(run: Run) -> tuple[str, ...]:
    """Those that make sense in the state of the run, the likeliest first."""
    if is_terminal(run.state):
        return ("rerun", "note")
    ended = ("declare_lost",) if run.state == RunState.ORPHANED else ()
    stopping = () if run.state == RunState.CANCEL_REQUESTED else ("cancel",)
    return (*stopping, "kill", *ended, "note")


def is_killed(run: Run) -> bool:
    """Whether an operator's kill was asked for, and not only a cancel."""
    return any(event.type == "kill_requested" for event in run.events)


def shown_dispatch(run: Run, asked: str) -> Attempt | None:
    """The dispatch whose number (from 1) is in the URL, else the last one; None before the first."""
    if not run.attempts:
        return None
    number = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 6 else 0
    return run.attempts[number - 1] if 0 < number <= len(run.attempts) else run.attempts[-1]


def dispatch_name(run: Run) -> str:
    """The text that names one of its dispatches by number: an attempt, unless one was dispatched again after a lost executor."""
    own = all(one.attempt == number for number, one in enumerate(run.attempts, 1))
    return DISPATCH_NAMES[0] if own else DISPATCH_NAMES[1]
