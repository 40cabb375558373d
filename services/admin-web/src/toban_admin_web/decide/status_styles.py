"""The style of a state, status or role, and groups of run states."""

from __future__ import annotations

from toban_domain.run import LIVE, TERMINAL, RunState

GOOD, BAD, WARN, BUSY, NEUTRAL = "good", "bad", "warn", "busy", "neutral"

_STYLES = {
    **dict.fromkeys(
        ("SUCCEEDED", "ok", "on", "good", "active", "leader", "fired", "accepted", "started", "delivered"), GOOD
    ),
    **dict.fromkeys(
        (
            "FAILED",
            "TIMED_OUT",
            "EXPIRED",
            "LOST",
            "lost",
            "failed",
            "error",
            "off",
            "cut",
            "missed",
            "none",
            "critical",
            "down",
        ),
        BAD,
    ),
    **dict.fromkeys(
        (
            "CANCEL_REQUESTED",
            "ORPHANED",
            "draining",
            "detached",
            "warning",
            "paused",
            "job_disabled",
            "stopped",
            "unresponsive",
            "failing",
        ),
        WARN,
    ),
    **dict.fromkeys(("RUNNING", "ASSIGNED", "WAITING_WORKER", "subleader", "waiting", "pending"), BUSY),
}

FAILED_STATES = (RunState.FAILED.value, RunState.TIMED_OUT.value)
"""Their runs have an error to show."""

_ICONS = {
    "PENDING": "clock",
    "DEFERRED": "calendar-clock",
    "ASSIGNED": "arrow-right-left",
    "RUNNING": "circle-play",
    "WAITING_WORKER": "hourglass",
    "CANCEL_REQUESTED": "ban",
    "ORPHANED": "unplug",
    "SUCCEEDED": "circle-check",
    "FAILED": "circle-x",
    "TIMED_OUT": "timer-off",
    "CANCELED": "ban",
    "SKIPPED": "skip-forward",
    "EXPIRED": "hourglass",
    "LOST": "unplug",
    "paused": "circle-pause",
    "job_disabled": "circle-pause",
}
_ICONS_OF_STYLES = {
    GOOD: "circle-check",
    BAD: "circle-x",
    WARN: "triangle-alert",
    BUSY: "circle-dot",
    NEUTRAL: "circle-minus",
}

STATE_GROUPS = {
    "live": tuple(sorted(state.value for state in LIVE)),
    "waiting": ("DEFERRED", "PENDING", "WAITING_WORKER"),
    "ended": tuple(sorted(state.value for state in TERMINAL)),
    "unsuccessful": tuple(sorted(state.value for state in TERMINAL - {RunState.SUCCEEDED, RunState.SKIPPED})),
}
"""Groups that the list of runs can be filtered by."""


def style(status: str) -> str:
    """The CSS class of a state, status or role; neutral for an unknown one."""
    return _STYLES.get(status, NEUTRAL)


def state_icon(status: str) -> str:
    """The icon of a state, status or role, so that it differs from others by more than its colour."""
    return _ICONS.get(status) or _ICONS_OF_STYLES[style(status)]


def is_terminal(state: str) -> bool:
    """Whether a run in this state never changes again."""
    return state in {one.value for one in TERMINAL}
