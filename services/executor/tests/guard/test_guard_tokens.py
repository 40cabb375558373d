"""Messages to a guard name an attempt by its token: what comes late reaches no other (docs/fencing.md 3.6)."""

from typing import Any


def test_a_late_word_about_an_attempt_that_is_over_reaches_no_other(guard: Any) -> None:
    old = guard.spawn("/bin/true")
    guard.hear("end")
    young = guard.spawn("sh", "-c", "echo ready; sleep 60")
    guard.hear_text(b"ready")
    guard.say(t="lease", token=old, boot=0.0, wall=0.0)
    guard.say(t="kill", token=old, cause="cancel", reason="late", grace=0.0)
    guard.say(t="kill", token=young, cause="cancel", reason="asked", grace=0.0)
    end = guard.hear("end")
    assert (end["token"], end["cause"], end["reason"]) == (young, "cancel", "asked")
