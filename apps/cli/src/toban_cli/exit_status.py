"""The end of a run as text and as an exit code."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from toban_cli.formatting import duration, to_time
from toban_cli.sanitize import clean
from toban_domain.outcome import Reason, failure_text

# Exit codes of --wait and --follow; docs/errors.md lists them.
RESULT_CODES: Mapping[str, int] = {
    "SUCCEEDED": 0,
    "FAILED": 1,
    "CANCELED": 3,
    "SKIPPED": 4,
    "EXPIRED": 5,
    "TIMED_OUT": 124,
}
# The program could not be started: the code that shells use.
NOT_STARTED = 127


def result_code(run: Any) -> int:
    """The exit code of a run that has ended."""
    if run.state == "FAILED" and run.reason == Reason.SPAWN_FAILED:
        return NOT_STARTED
    return RESULT_CODES.get(run.state, 1)


def format_exit(run: Any) -> str:
    """The exit code of the command, or the signal that ended it, "-" when there is neither."""
    if run.HasField("signal"):
        return signal_name(run.signal)
    return str(run.exit_code) if run.HasField("exit_code") else "-"


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def final_line(run: Any) -> str:
    """One line: state, exit code, duration, why."""
    parts = [f"run {run.id} {run.state}"]
    if run.HasField("signal"):
        parts.append(f"ended by {signal_name(run.signal)}")
    elif run.HasField("exit_code"):
        parts.append(f"exit code {run.exit_code}")
    begun, ended = to_time(run.started_at), to_time(run.finished_at)
    if begun is not None and ended is not None:
        parts.append(duration((ended - begun).total_seconds()))
    if run.attempt > 1:
        parts.append(f"attempt {run.attempt}")
    why = (run.cancel_reason if run.state == "CANCELED" and not run.error_summary else "") or failure_text(
        run.reason, run.error_summary, run.last_line
    )
    return clean(", ".join(parts) + (f": {why}" if why and run.state != "SUCCEEDED" else ""))
