"""The colour that a word of the cluster gets: good, bad, warn, live or quiet."""

from __future__ import annotations

from toban_domain.run import LIVE, TERMINAL, RunState

GOOD, BAD, WARN, BUSY, QUIET = "good", "bad", "warn", "live", "quiet"

_TONES = {
    **dict.fromkeys(("SUCCEEDED", "ok", "on", "active", "leader", "leads", "fired", "accepted"), GOOD),
    **dict.fromkeys(
        ("FAILED", "TIMED_OUT", "EXPIRED", "LOST", "lost", "failed", "error", "off", "cut", "missed", "none"), BAD
    ),
    **dict.fromkeys(
        ("CANCEL_REQUESTED", "ORPHANED", "draining", "detached", "warning", "paused", "stopped", "silent"), WARN
    ),
    **dict.fromkeys(("RUNNING", "ASSIGNED", "WAITING_WORKER", "subleader"), BUSY),
}

GROUPS = {
    "live": tuple(sorted(state.value for state in LIVE)),
    "ended": tuple(sorted(state.value for state in TERMINAL)),
    "unsuccessful": tuple(sorted(state.value for state in TERMINAL - {RunState.SUCCEEDED, RunState.SKIPPED})),
}
"""Groups of states that the list of runs can be narrowed to."""


def tone(word: str) -> str:
    """The tone of a state, status or role; quiet for what has none."""
    return _TONES.get(word, QUIET)


def is_over(state: str) -> bool:
    """Whether a run will not change any more."""
    return state in {one.value for one in TERMINAL}
