"""Rows of django-celery-beat as declarations: the same times, and a line for all that is otherwise."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from toban.declaring import model
from toban.django import celery_cron
from toban.django.celery_beat import Imported, convert, module_text
from toban_domain.schedule import RuleSpec
from toban_schedule.rule import Rule

NOW = datetime(2026, 11, 30, tzinfo=UTC)
FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")


def crontab(text: str) -> dict[str, Any]:
    """In the order of cron."""
    return {**dict(zip(FIELDS, text.split(), strict=True)), "timezone": "Asia/Tokyo"}


def imported(tasks: Any = None, **columns: Any) -> Imported:
    row = {"id": 7, "name": "Send mail", "task": "shop.tasks.send", "interval": {"every": 5, "period": "minutes"}}
    [done] = convert([{**row, **columns}], NOW, tasks)
    return done


# Celery matches the same days and minutes; those of the first column were compared with its own code.
CRONS = {
    "0 7 * * mon-fri": "0 7 * * MON-FRI",
    "*/15 8-18/2 1,15 * *": "*/15 8-18/2 1,15 * *",
    "0 22-2 * * *": "0 22,23,0,1,2 * * *",
    "0 20-4/3 * * *": "0 20,23,2 * * *",
    "0 0 * march,December Sunday": "0 0 * 3,12 SUN",
    "0 0 * * sat-mon": "0 0 * * 6,0,1",
    "0-59 0-23 1-31 1-12 0-6": "* * * * *",
    "*/90 * * * *": "0 * * * *",
    "0 0 */2 * mon": "0 0 */2 * MON",
    "0 8 1-7 * 1": "0 8 * * MON#1",
    "0 8 15-21 * mon-wed": "0 8 * * MON#3,TUE#3,WED#3",
}


def test_a_crontab_has_the_same_times(subtests: pytest.Subtests) -> None:
    for given, wanted in CRONS.items():
        with subtests.test(given):
            assert celery_cron.convert(crontab(given))[0] == wanted
            assert list(islice(Rule.of(RuleSpec(cron=wanted)).slots_after(NOW), 3))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("0 8 13 * fri", "day_of_month 13 and day_of_week fri must both match"),
        ("0 8 2-8 * mon", "must both match"),
        ("0 24 * * *", "hour has '24'; it is from 0 to 23"),
        ("1/3 * * * *", "minute has '1/3', which cannot be read"),
        ("*/0 * * * *", "minute has '\\*/0', which cannot be read"),
        ("0 0 * * soon", "day_of_week has 'soon'; it is from 0 to 6"),
    ],
)
def test_a_crontab_that_has_no_expression_is_named(given: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        celery_cron.convert(crontab(given))


def test_a_row_is_a_job_that_runs_its_task() -> None:
    done = imported(
        interval=None, crontab=crontab("0 7 * * mon"), args='["a", 1]', kwargs='{"days": 2}', description="Sends it"
    )
    assert done.arguments == {
        "name": "send-mail",
        "description": "Sends it",
        "cron": "0 7 * * MON",
        "timezone": "Asia/Tokyo",
        "payload": {"task": "shop.tasks.send", "task_args": '["a", 1]', "task_kwargs": {"days": 2}},
    }
    assert (
        done.lines == ['row 7 "Send mail", task "shop.tasks.send": job send-mail, cron 0 7 * * MON Asia/Tokyo']
        and not done.lost
    )


def test_a_clocked_row_has_one_slot() -> None:
    time = datetime(2026, 12, 24, 7, 30, 15, tzinfo=UTC)
    done = imported(interval=None, clocked={"clocked_time": time}, one_off=True)
    spec = {"cron": done.arguments["cron"], **done.arguments["schedule"]}
    assert list(islice(Rule.of(RuleSpec.from_json(spec)).slots_after(NOW), 2)) == [time] and not done.lost


NOTES: tuple[tuple[dict[str, Any], str, bool, dict[str, Any]], ...] = (
    ({}, "interval: every 5 minutes begins at multiples of the period", False, {"interval_seconds": 300}),
    ({"interval": {"every": 1, "period": "days"}}, "begins at 00:00 UTC of a day", False, {"interval_seconds": 86_400}),
    ({"interval": {"every": 2_000_000, "period": "microseconds"}}, "interval: ", False, {"interval_seconds": 2}),
    ({"interval": {"every": 5, "period": "microseconds"}}, "give whole seconds", True, {}),
    ({"interval": None}, "rule: the row has none", True, {}),
    ({"crontab": crontab("* * * * *")}, "rule: the row has crontab and interval", True, {}),
    ({"interval": None, "crontab": crontab("0 8 13 * 5")}, "crontab: day_of_month 13 and", True, {}),
    (
        {"interval": None, "solar": {"event": "sunset", "latitude": 35.7, "longitude": 139.7}},
        "solar: sunset at 35.7, 139.7; there is no such rule",
        True,
        {},
    ),
    ({"interval": None, "clocked": {"clocked_time": NOW - timedelta(days=1)}}, "has passed", False, {}),
    ({"one_off": True}, "one_off: its interval rule is for one time", True, {}),
    ({"one_off": True, "enabled": False}, "`toban run start send-mail --at TIME`", False, {}),
    ({"enabled": 0}, "enabled: false", False, {"schedule": {"enabled": False}}),
    ({"start_time": NOW}, "start_time: ", False, {"schedule": {"start": NOW.isoformat()}}),
    ({"expires": NOW}, "it has passed, so there is no slot", False, {"schedule": {"end": NOW.isoformat()}}),
    ({"expire_seconds": 60}, "expire_seconds: ", False, {"job": {"max_wait_seconds": 60}}),
    ({"queue": "mail"}, 'queue: "mail" is left out; executors are chosen by', False, {}),
    ({"exchange": "x"}, 'exchange: "x" is left out', False, {}),
    ({"routing_key": "x"}, 'routing_key: "x" is left out', False, {}),
    ({"priority": 0}, "priority: 0 is left out", False, {}),
    ({"headers": '{"a": 1}'}, "headers: ", False, {}),
    ({"tasks": {"shop.tasks.sent"}}, "task: the Celery app of this project has no task of this name", False, {}),
    ({"kwargs": "{"}, 'kwargs: "{" is no JSON object', True, {}),
    ({"args": "{}"}, 'args: "{}" is no JSON list', True, {}),
    ({"task": "celery.backend_cleanup"}, "Celery's own clean-up", False, {}),
)


def test_each_thing_that_is_otherwise_has_a_line(subtests: pytest.Subtests) -> None:
    for columns, note, lost, arguments in NOTES:
        with subtests.test(note):
            done = imported(**columns)
            assert [line for line in done.notes if note in line], done.notes
            assert done.lost is lost
            assert done.arguments.items() >= arguments.items()
            assert lost is False or not {"cron", "interval_seconds"} & set(done.arguments)


def test_names_of_jobs_are_valid_and_each_is_one_row() -> None:
    rows = [imported_row(number, name) for number, name in enumerate(("A b", "a-b", "催促", "x" * 200))]
    assert [done.arguments["name"] for done in convert(rows, NOW, None)] == ["a-b", "a-b-1", "celery-beat-2", "x" * 100]


def imported_row(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name, "task": "t", "interval": {"every": 1, "period": "hours"}}


def test_the_text_declares_what_was_converted_and_runs_nothing_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_declared", {})
    hostile = 'x\n"""); raise SystemExit(1)  # \\'
    done = imported(name=hostile, description=hostile, queue=hostile, task=hostile, kwargs='{"a": [null, true, "\\n"]}')
    exec(compile(module_text([done, imported(enabled=False)]), "toban_jobs.py", "exec"), {})
    first, second = model.declared()
    assert {first.name, second.name} == {done.arguments["name"], "send-mail"}
    one = next(found for found in (first, second) if found.name == done.arguments["name"])
    assert one.description == hostile
    assert one.payload == {"task": hostile, "task_kwargs": {"a": [None, True, "\n"]}}
