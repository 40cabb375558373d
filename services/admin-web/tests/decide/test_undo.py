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
    ):
        with subtests.test(done):
            assert undo_of(done, page, given) is None
