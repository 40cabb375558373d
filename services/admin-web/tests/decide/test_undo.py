"""Which form takes back what was done, and of what."""

from typing import Any

from toban_admin_web.decide.undo import Undo, undo_of
from toban_domain.access import Action


def test_the_reverse_names_what_was_changed(subtests: Any) -> None:
    pool = {"name": "pool:db"}
    for done, page, given, form, values, needs in (
        ("paused", "schedules.show", {"name": "s"}, "job_actions.ask_resume", {"name": "s"}, Action.EDIT),
        (
            *("resumed", "jobs.show", {"name": "j", "of": "s"}),
            *("job_actions.ask_pause", {"name": "s", "back": "job"}, Action.EDIT),
        ),
        ("undrained", "executors.show", {"of": "3"}, "cluster_actions.ask_drain", {"worker_id": "3"}, Action.OPERATE),
        ("breaker_opened", "limits.show", pool, "limits.ask", {**pool, "verb": "close"}, Action.OPERATE),
        ("limit_set", "limits.show", pool, "limits.ask", {**pool, "verb": "reset"}, Action.OPERATE),
        (
            *("limit_set", "limits.show", {**pool, "was": "-1"}, "limits.ask"),
            *({**pool, "verb": "set", "value": "-1"}, Action.OPERATE),
        ),
        (
            *("limit_reset", "limits.listed", {"of": "pool:db", "was": "4"}, "limits.ask"),
            *({**pool, "verb": "set", "value": "4"}, Action.OPERATE),
        ),
        (
            "hook_enabled",
            "incoming.show",
            {"name": "h"},
            "incoming.ask",
            {"name": "h", "verb": "disable"},
            Action.OPERATE,
        ),
    ):
        with subtests.test(done):
            assert undo_of(done, page, given) == Undo(form, values, needs)


def test_what_has_no_reverse_or_names_nothing_has_no_way_back(subtests: Any) -> None:
    for done, page, given in (
        ("killed", "runs.show", {"run_id": "1"}),
        ("", "jobs.show", {"name": "j"}),
        ("paused", "jobs.show", {"name": "j"}),
        ("drained", "executors.show", {"of": "../3"}),
        ("limit_reset", "limits.show", {"name": "pool:db"}),
        ("limit_set", "limits.show", {"name": "pool:db", "was": "<4>"}),
    ):
        with subtests.test(done):
            assert undo_of(done, page, given) is None
