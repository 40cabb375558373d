"""What `command_job` declares, as manifests; and the commands that track items."""

import re
import zoneinfo
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from toban.declaring import keys, model
from toban.declaring.model import Place, declared
from toban.django import TobanCommandMixin, command_job
from toban_domain.schedule import RuleSpec
from toban_manifests.jobs import Job
from toban_manifests.read import Document, read_manifests
from toban_manifests.schedules import Schedule
from toban_manifests.triggers import EventTrigger
from toban_schedule.rule import problems

PLACE = Place(folder="/srv/shop", interpreter="/srv/shop/.venv/bin/python", settings="shop.settings", project="shop")


@pytest.fixture(autouse=True)
def _nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_declared", {})


def test_a_command_is_a_job_of_its_project_with_a_schedule() -> None:
    made = command_job(
        "send_mail", cron="0 7 * * *", timezone="Asia/Tokyo", payload={"days": 2}, job={"priority": 3}, warm=True
    )
    job, schedule = made.manifests(PLACE)
    assert job["metadata"] == {"name": "send-mail", "labels": {"toban-django": "shop"}}
    step = {
        "type": "django",
        "command": "send_mail",
        "project": "/srv/shop",
        "interpreter": "/srv/shop/.venv/bin/python",
        "settings": "shop.settings",
        "warm": True,
    }
    assert job["spec"] == {"default_payload": {"days": 2}, "priority": 3, "steps": [step]}
    assert (schedule["kind"], schedule["spec"]) == (
        "Schedule",
        {"job": "send-mail", "cron": "0 7 * * *", "timezone": "Asia/Tokyo"},
    )


def test_without_a_rule_there_is_no_schedule() -> None:
    assert [one["kind"] for one in command_job("a", args=["-v", "2"]).manifests(PLACE)] == ["Job"]


RULES: tuple[tuple[str, Any], ...] = (
    ("cron", "@daily"),
    ("cron", "*/5 H(0-3) L * MON#1"),
    ("cron", "30 0 3 1-5 JAN ?"),
    ("daily_at", "2:30"),
    ("daily_at", "23:59:59"),
    ("weekly_at", "sat-mon 02:30"),
    ("weekly_at", "Monday, thu 02:30:05"),
    ("hourly_at_minute", 5),
    ("every_n_minutes", 366 * 1440),
    ("interval_seconds", 366 * 86_400),
)


def test_each_rule_of_a_schedule_can_be_declared(subtests: pytest.Subtests) -> None:
    """Each that the site takes."""
    assert {rule for rule, _ in RULES} == {*keys.RULES}
    for number, (rule, value) in enumerate(RULES):
        with subtests.test(f"{rule} {value}"):
            given: dict[str, Any] = {rule: value}
            [_, schedule] = command_job("a", name=f"a{number}", timezone="Asia/Tokyo", **given).manifests(PLACE)
            assert schedule["spec"].items() >= given.items()
            assert problems(RuleSpec.from_json({**schedule["spec"], "name": "a"})) == []


def test_a_zone_is_for_the_site_where_this_machine_has_no_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    assert command_job("a", cron="@daily", timezone="Mars/Base").schedule["timezone"] == "Mars/Base"


def test_the_first_minute_of_an_hour_is_a_rule() -> None:
    assert command_job("a", hourly_at_minute=0).schedule == {"hourly_at_minute": 0}


def test_a_command_is_started_by_events() -> None:
    trigger = {"event_type": "order.paid", "payload": {"order": "{{ event.payload.id }}"}}
    [_, made] = command_job("a", trigger=trigger).manifests(PLACE)
    assert (made["kind"], made["metadata"]["name"], made["spec"]) == ("EventTrigger", "a", {"job": "a", **trigger})


def test_jobs_have_what_their_project_gives_them() -> None:
    of_project = {"env": {"A": "1", "B": "1"}, "labels": {"team": "a", "tier": "1"}, "secrets": [{"name": "db"}]}
    place = replace(PLACE, job={**of_project, "timeout_seconds": 60, "retry": {"max_attempts": 3}})
    own = {"env": {"B": "2"}, "labels": {"tier": "2"}, "timeout_seconds": 5}
    [job] = command_job("a", job=own).manifests(place)
    assert {key: value for key, value in job["spec"].items() if key != "steps"} == {
        "env": {"A": "1", "B": "2"},
        "secrets": [{"name": "db"}],
        "timeout_seconds": 5,
        "retry": {"max_attempts": 3},
    }
    assert job["metadata"]["labels"] == {"team": "a", "tier": "2", "toban-django": "shop"}


def test_the_keys_are_those_of_manifests() -> None:
    """Which the SDK cannot import."""
    assert {*keys.JOB, "steps", "default_payload"} == {*Job.model_fields, "labels"}
    assert {*keys.SCHEDULE, *keys.RULES, "job", "timezone"} == {*Schedule.model_fields}
    assert {*keys.TRIGGER, "job"} == {*EventTrigger.model_fields}


def test_the_declarations_of_the_page_are_what_the_site_takes() -> None:
    """With the keys of every job that its settings name."""
    page = (Path(__file__).parents[3] / "docs" / "django.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "command_job(" in block]
    for block in blocks:
        exec(block, {"command_job": command_job})
    place = replace(PLACE, job={"env": {"A": "1"}, "secrets": [{"name": "db", "file_env": "DB_FILE"}]})
    made = [manifest for one in declared() for manifest in one.manifests(place)]
    read = read_manifests([Document("docs/django.md", one) for one in made], check_rule=problems)
    assert len(blocks) == 2 and {one.kind for one in read} == {"Job", "Schedule", "EventTrigger"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cron": "@daily", "interval_seconds": 5}, "'a' has cron and interval_seconds; give one of them"),
        ({"timezone": "Asia/Tokyo"}, "without a rule"),
        ({"cron": "@daily", "timezone": "Asia/Tokio"}, "'a' has timezone='Asia/Tokio', .* did you mean 'Asia/Tokyo'"),
        ({"interval_seconds": 0}, "'a' has interval_seconds=0; give a whole number from 1 to"),
        ({"every_n_minutes": True}, "'a' has every_n_minutes=True"),
        ({"hourly_at_minute": 60}, "'a' has hourly_at_minute=60; give a whole number from 0 to 59"),
        ({"cron": ""}, "'a' has cron=''; write it as"),
        ({"cron": "0 7"}, "'a' has cron='0 7'; write it as"),
        ({"daily_at": "7"}, "'a' has daily_at='7'; write it as \"02:30\""),
        ({"weekly_at": "02:30"}, "'a' has weekly_at='02:30'; write it as"),
        ({"args": "--days 3"}, r"`args` is a text; give a list of texts, such as \['--days', '3'\]"),
        ({"payload": {"day": date(2026, 1, 1)}}, "`payload` cannot be written as JSON: .* give times as text"),
        ({"payload": "days=3"}, "`payload` must be a dict, is str"),
        ({"schedule": {"enabled": False}}, "without a rule"),
        ({"job": {"steps": []}}, "`job` has 'steps': the command is the first argument of command_job"),
        ({"job": {"timeout": 5}}, "command 'a': `job` has 'timeout', which is no key; did you mean 'timeout_seconds'"),
        ({"job": [1]}, "`job` must be a dict, is list"),
        ({"job": {"env": "A=1"}}, "`job` has 'env', which must be a dict, and is str"),
        ({"job": {"secrets": ["db"]}}, "`job` has 'secrets', which must be a list"),
        (
            {"job": {"labels": {"toban-django": "x"}}},
            r"the label 'toban-django', which .* TOBAN\['PROJECT'\] is its value",
        ),
        ({"cron": "@daily", "schedule": {"job": "x"}}, "`schedule` has 'job': the name is the argument name"),
        (
            {"schedule": {"daily_at": "02:30"}},
            "`schedule` has 'daily_at': this is the argument daily_at of command_job",
        ),
        (
            {"cron": "@daily", "schedule": {"xyzzy": 1}},
            "'xyzzy', which is no key; the keys are catch_up, dst, enabled, ",
        ),
        ({"trigger": {"event_type": "a", "job": "x"}}, "`trigger` has 'job'"),
        ({"trigger": {"enabled": False}}, "`trigger` has no event; give event_type, or on_run_end for ends of runs"),
        (
            {"trigger": {"event_type": "a", "on_run_end": {}}},
            "`trigger` has event_type and on_run_end; give one of them",
        ),
    ],
)
def test_a_declaration_that_cannot_be_is_an_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        command_job("a", **given)
    assert not declared()


def test_one_name_twice_is_an_error_unless_it_is_the_same() -> None:
    command_job("b", interval_seconds=5)
    command_job("b", interval_seconds=5)
    command_job("a")
    assert [one.name for one in declared()] == ["a", "b"]
    with pytest.raises(ValueError, match="declared twice"):
        command_job("b", interval_seconds=6)


class Recorder(TobanCommandMixin):
    """A run that is cancelled after some requests."""

    def __init__(self, cancel_at: int = 100) -> None:
        self.shown: list[Any] = []
        self.asked, self._cancel_at = 0, cancel_at

    @property
    def job(self) -> Any:
        return self

    def stop_if_cancelled(self) -> None:
        self.asked += 1
        if self.asked >= self._cancel_at:
            raise SystemExit(143)

    def progress(self, done: int, total: int, summary: str = "") -> None:
        self.shown.append((done, total))

    def heartbeat(self) -> None:
        self.shown.append("alive")


def unsized() -> Iterator[int]:
    yield from range(2)


def test_items_are_passed_on_with_progress() -> None:
    one = Recorder()
    assert list(one.track(["a", "b"], seconds=0)) == ["a", "b"]
    assert one.shown == [(0, 2), (1, 2), (2, 2)]


def test_progress_is_shown_no_more_often_than_wanted() -> None:
    one = Recorder()
    assert len(list(one.track(range(1000), seconds=3600))) == 1000
    assert one.shown == [(0, 1000), (1000, 1000)] and one.asked == 1


def test_items_without_a_number_are_a_heartbeat_and_more_items_than_counted_are_all_of_them() -> None:
    one = Recorder()
    assert list(one.track(unsized(), seconds=0)) == [0, 1]
    assert one.shown == ["alive"] * 3
    two = Recorder()
    assert list(two.track(unsized(), total=1, seconds=0)) == [0, 1]
    assert two.shown == [(0, 1), (1, 1), (1, 1)]


def test_a_cancelled_run_ends_before_its_next_item() -> None:
    one, done = Recorder(cancel_at=2), []
    with pytest.raises(SystemExit) as ended:
        for item in one.track(range(9), seconds=0):
            done.append(item)
    assert (ended.value.code, done) == (143, [0])
