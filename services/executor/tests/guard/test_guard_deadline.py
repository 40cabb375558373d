"""The lease's deadline ends a job whatever else is ending it, or has ended of it (docs/fencing.md 3.6)."""

import signal
from typing import Any

import pytest

from toban_executor.decide.guard_types import Kill
from toban_executor.decide.models import AttemptEnd
from toban_executor.guard.clock import boottime

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    ("script", "cause", "ended_by"),
    [(STUBBORN, "cancel", signal.SIGKILL), (f"({STUBBORN}) & exec sleep 60", "cancel", signal.SIGTERM)],
    ids=["its main process", "what that left behind"],
)
def test_no_grace_reaches_beyond_the_deadline(guard: Any, script: str, cause: str, ended_by: int, at_most: Any) -> None:
    deadline = boottime() + 1.5
    token = guard.spawn("sh", "-c", script, lease=1.5)
    guard.receive_text(b"ready")
    guard.send(Kill(token=token, cause=cause, reason="asked", grace=600.0))
    end = guard.receive(AttemptEnd)
    assert (end.cause, end.signal) == (cause, ended_by)
    assert boottime() - deadline < at_most(0.5)
