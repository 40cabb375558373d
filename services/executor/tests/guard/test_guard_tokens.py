"""Messages to a guard name an attempt by its token: what comes late reaches no other (docs/fencing.md 3.6)."""

from typing import Any

from toban_executor.decide.guard_types import Kill, SetDeadline
from toban_executor.decide.models import AttemptEnd
from toban_fencing.executor_lease import Instant


def test_a_late_word_about_an_attempt_that_is_over_reaches_no_other(guard: Any) -> None:
    old = guard.spawn("/bin/true")
    guard.receive(AttemptEnd)
    young = guard.spawn("sh", "-c", "echo ready; sleep 60")
    guard.receive_text(b"ready")
    guard.send(SetDeadline(token=old, deadline=Instant(0.0, 0.0)))
    guard.send(Kill(token=old, cause="cancel", reason="late", grace=0.0))
    guard.send(Kill(token=young, cause="cancel", reason="asked", grace=0.0))
    end = guard.receive(AttemptEnd)
    assert (end.key.token, end.cause, end.reason) == (young, "cancel", "asked")
