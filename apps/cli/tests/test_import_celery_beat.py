"""`toban import celery-beat`: schedules are read from the syntax tree or from JSON; what is not written there is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_cli.importers.celery_beat import convert
from toban_cli.importers.python_source import Unreadable
from toban_cli.importers.result import Entry, Fate, Imported, Options

Toban = Callable[..., tuple[int, str, str]]
HEAD = "from celery.schedules import crontab, schedule, solar\nfrom datetime import timedelta\nimport celery.schedules, os\n"


def imported(text: str, **options: Any) -> Imported:
    return convert(text.encode(), "app.py", Options(**options))


def task(keys: str, before: str = "") -> Entry:
    [entry] = imported(f"{HEAD}{before}\napp.conf.beat_schedule = {{'x': {{{keys}}}}}\n").entries
    return entry


@pytest.mark.parametrize(
    "text",
    [
        "app.conf.beat_schedule = {'x': {'task': 'shop.t.add', 'schedule': 30}}",
        "CELERY_BEAT_SCHEDULE: dict = {'x': dict(task='shop.t.add', schedule=30.0)}",
        "CELERYBEAT_SCHEDULE = {}\nCELERYBEAT_SCHEDULE['x'] = {'task': 'shop.t.add', 'schedule': timedelta(seconds=30)}",
        "app.conf.update({'beat_schedule': {'x': {'task': 'shop.t.add', 'schedule': 30}}})",
        "app.conf.update(beat_schedule={'x': {'task': 'shop.t.add', 'schedule': 15 * 2}})",
        "app.conf.beat_schedule.update({'x': {'task': 'shop.t.add', 'schedule': 30}})",
        "EVERY = timedelta(minutes=1) / 2\nJOBS = {'x': {'task': 'shop.t.' + 'add', 'schedule': EVERY}}\nbeat_schedule = {**JOBS}",
        "class Config:\n    beat_schedule = {'x': {'task': 'shop.t.add', 'schedule': schedule(run_every=30)}}",
        json.dumps({"x": {"task": "shop.t.add", "schedule": 30}}),
    ],
)
def test_schedules_are_found_where_people_write_them(text: str) -> None:
    [entry] = imported(text if text.startswith("{") else HEAD + text).entries
    assert entry.fate is Fate.CONVERTED
    job, schedule = (document["spec"] for document in entry.documents)
    assert job == {
        "steps": [{"id": "task", "type": "python", "callable": "shop.t:add"}],
        "concurrency": {"policy": "allow"},
    }
    assert schedule == {"job": "x", "interval_seconds": 30, "catch_up": "one"}


def test_crontabs(subtests: pytest.Subtests) -> None:
    rows = {
        "crontab()": "* * * * *",
        "crontab(minute=0, hour='*/3,8-17')": "0 */3,8-17 * * *",
        "crontab(30, 7)": "30 7 * * *",
        "crontab(minute=[0, 30], day_of_week='mon-fri')": "0,30 * * * 1-5",
        "crontab(minute='0', hour='0', day_of_month='*/2', day_of_week='sunday')": "0 0 */2 * 0",
        "crontab(0, 8, day_of_month='1-7', day_of_week='mon')": "0 8 * * 1#1",
        "crontab(0, 8, day_of_month='15-21', day_of_week='fri-mon,3')": "0 8 * * 0#3,1#3,3#3,5#3,6#3",
        "celery.schedules.crontab(0, 0, month_of_year='jan,jul', day_of_month=1)": "0 0 1 1,7 *",
    }
    for text, cron in rows.items():
        with subtests.test(text):
            assert task(f"'task': 'a.b', 'schedule': {text}").documents[1]["spec"]["cron"] == cron


def test_times_that_no_schedule_has(subtests: pytest.Subtests) -> None:
    rows = {
        "solar('sunset', -37.8, 144.9)": "is no time of a schedule",
        "crontab(0, 0, day_of_month=13, day_of_week='fri')": "both must match",
        "crontab(0, 0, day_of_month='1-8', day_of_week='fri')": "both must match",
        "crontab(0, 0, day_of_month='1-7', day_of_week='x')": "'x' is not a day of week",
        "crontab(minute='61')": "61",
        "crontab(0, 0, nowfunc=now)": "now has no value",
        "0.5": "whole number of seconds",
        "None": "neither a crontab nor a number",
        "get_schedule(1)": "is no time of a schedule",
    }
    for text, reason in rows.items():
        with subtests.test(text):
            entry = task(f"'task': 'a.b', 'schedule': {text}")
            assert entry.fate in (Fate.UNTIMED, Fate.LOST)
            assert reason in entry.outcome


def test_arguments_become_the_payload(subtests: pytest.Subtests) -> None:
    rows: dict[str, tuple[str, dict[str, Any] | None]] = {
        "'kwargs': {'a': [1, None]}": ("", {"a": [1, None]}),
        "'args': (1, 'x'), 'kwargs': {'c': 2}": ("def b(self, a, b, c): ...", {"a": 1, "b": "x", "c": 2}),
        "'args': (1,)": ("", None),
        "'kwargs': {'a': timedelta(1)}": ("", None),
    }
    for keys, (before, payload) in rows.items():
        with subtests.test(keys):
            entry = task(f"'task': 'a.b', 'schedule': 1, {keys}", before)
            job, schedule = (document["spec"] for document in entry.documents)
            assert job.get("default_payload") == payload
            assert entry.fate is (Fate.PARTIAL if payload is None else Fate.CONVERTED)
            assert schedule.get("enabled") is (False if payload is None else None)


def test_options_are_mapped_or_named() -> None:
    options = "{'queue': 'slow', 'expires': 60.0, 'time_limit': 90, 'priority': 3, 'countdown': 5}"
    entry = task(f"'task': 'a.b', 'schedule': 1, 'options': {options}, 'relative': True, 'odd': 1")
    job = entry.documents[0]
    assert job["metadata"]["labels"]["celery/queue"] == "slow"
    assert (job["spec"]["max_wait_seconds"], job["spec"]["timeout_seconds"]) == (60, 90)
    text = "\n".join(entry.notes)
    for part in ("queue slow", "priority 3", "option countdown", "relative: true", "NOT carried over: odd"):
        assert part in text


def test_what_only_an_executed_file_has_is_named(subtests: pytest.Subtests) -> None:
    rows = {
        "beat_schedule = {'x': {'task': os.environ['T'], 'schedule': 1}}": "os.environ['T'] has no value that is written in the file",
        "beat_schedule = load()": "no literal dictionary",
        "beat_schedule = {'x': {'task': 'a b', 'schedule': 1}}": "no dotted path",
        "beat_schedule = {'x': {'task': 'celery.backend_cleanup', 'schedule': 1}}": "a task of Celery itself",
        "sender.add_periodic_task(10.0, add.s(1))": "add_periodic_task is called when the program starts",
        "N = 1\nN = 2\nbeat_schedule = {'x': {'task': 'a.b', 'schedule': N}}": "N has no value",
    }
    for text, reason in rows.items():
        with subtests.test(text):
            [entry] = imported(HEAD + text).entries
            assert (entry.fate, entry.documents) == (Fate.LOST, ())
            assert reason in entry.outcome


def test_the_zone_of_the_file_holds() -> None:
    text = f"{HEAD}beat_schedule = {{'x': {{'task': 'a.b', 'schedule': crontab(0, 3)}}}}\n"
    for zone in (
        "app.conf.timezone = 'Asia/Tokyo'",
        "CELERY_TIMEZONE = 'Asia/Tokyo'",
        "app.conf.update(timezone='Asia/Tokyo')",
        "app.conf.update({'timezone': 'Asia/Tokyo'})",
        "TIME_ZONE = 'Asia/Tokyo'\nCELERY_TIMEZONE: str = TIME_ZONE",
        "app.conf.timezone = ZoneInfo('Asia/Tokyo')",
        "app.conf.timezone = os.environ['TZ']\napp.conf.timezone = 'Asia/Tokyo'",
    ):
        assert imported(text + zone, timezone="Europe/Berlin").documents[1]["spec"]["timezone"] == "Asia/Tokyo"
    assert imported(text, timezone="Europe/Berlin").documents[1]["spec"]["timezone"] == "Europe/Berlin"


def test_a_zone_that_is_not_written_in_the_file_is_missing() -> None:
    head = f"{HEAD}app.conf.timezone = 'Asia/Tokyo'\napp.conf.timezone = os.environ['TZ']\n"
    rows = {"crontab(0, 3)": Fate.PARTIAL, "crontab(0, 3), 'timezone': 'UTC'": Fate.CONVERTED, "30": Fate.CONVERTED}
    for schedule, fate in rows.items():
        [entry] = imported(f"{head}beat_schedule = {{'x': {{'task': 'a.b', 'schedule': {schedule}}}}}\n").entries
        assert entry.fate is fate
        assert any("os.environ['TZ'], which has no value" in note for note in entry.notes) is (fate is Fate.PARTIAL)


DUMP: list[dict[str, Any]] = [
    {"model": "django_celery_beat.intervalschedule", "pk": 1, "fields": {"every": 2, "period": "hours"}},
    {
        "model": "django_celery_beat.crontabschedule",
        "pk": 1,
        "fields": {
            "minute": "0",
            "hour": "4",
            "day_of_week": "*",
            "day_of_month": "*",
            "month_of_year": "*",
            "timezone": "Asia/Tokyo",
        },
    },
    *(
        {
            "model": "django_celery_beat.periodictask",
            "pk": pk,
            "fields": {"name": f"t{pk}", "task": "shop.t.add", **fields},
        }
        for pk, fields in enumerate[dict[str, Any]](
            [
                {"interval": 1, "args": "[]", "kwargs": '{"a": 1}', "queue": "slow", "enabled": False},
                {"crontab": 1, "expire_seconds": 60, "description": "Adds"},
                {"solar": 1},
                {"interval": 1, "one_off": True},
            ]
        )
    ),
]


def test_a_dump_of_django_celery_beat(subtests: pytest.Subtests) -> None:
    entries = imported(json.dumps(DUMP)).entries
    specs = [[document["spec"] for document in entry.documents] for entry in entries]
    with subtests.test("interval"):
        assert specs[0][0]["default_payload"] == {"a": 1}
        assert specs[0][1] == {"job": "t0", "interval_seconds": 7200, "catch_up": "one", "enabled": False}
    with subtests.test("crontab"):
        assert specs[1][0]["max_wait_seconds"] == 60
        assert specs[1][1] == {"job": "t1", "cron": "0 4 * * *", "timezone": "Asia/Tokyo", "catch_up": "one"}
    with subtests.test("no times"):
        assert [entry.fate for entry in entries[2:]] == [Fate.UNTIMED, Fate.UNTIMED]


def test_bounds_of_a_row_are_those_of_the_schedule(subtests: pytest.Subtests) -> None:
    rows: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
        "both": (
            {"start_time": "2019-01-01T00:00:00+09:00", "expires": "2020-01-01T00:00:00Z"},
            {"start": "2019-01-01T00:00:00+09:00", "end": "2020-01-01T00:00:00+00:00"},
            "",
        ),
        "with seconds": (
            {"expires": "2020-01-01T00:00:00Z", "expire_seconds": 5},
            {"end": "2020-01-01T00:00:00+00:00"},
            "",
        ),
        "no zone": (
            {"expires": "2020-01-01T00:00:00"},
            {"enabled": False},
            "MISSING: expires 2020-01-01T00:00:00 is no",
        ),
        "no time": ({"start_time": 5}, {"enabled": False}, "MISSING: start_time 5 is no date"),
        "headers": ({"headers": '{"a": 1}'}, {}, "option headers is NOT carried over"),
        "no headers": ({"headers": "{}"}, {}, ""),
    }
    for name, (fields, expected, note) in rows.items():
        with subtests.test(name):
            row = {
                "model": "django_celery_beat.periodictask",
                "pk": 1,
                "fields": {**DUMP[2]["fields"], "enabled": True, **fields},
            }
            [entry] = imported(json.dumps([*DUMP[:2], row])).entries
            spec = entry.documents[1]["spec"]
            assert {key: spec[key] for key in ("start", "end", "enabled") if key in spec} == expected
            assert entry.documents[0]["spec"].get("max_wait_seconds") == fields.get("expire_seconds")
            assert any(one.startswith(note) for one in entry.notes) if note else "headers" not in str(entry.notes)
            assert (entry.fate is Fate.PARTIAL) is note.startswith("MISSING")
    dated = task("'task': 'a.b', 'schedule': 1, 'options': {'expires': datetime(2020, 1, 1)}")
    assert dated.fate is Fate.PARTIAL


def test_the_command(toban: Toban, tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text(
        f"{HEAD}open('{tmp_path}/executed', 'w')\nbeat_schedule = {{'x': {{'task': 'a.b', 'schedule': 30}}}}\n"
    )
    code, out, err = toban(
        "import", "celery-beat", str(file), "--interpreter", "/srv/.venv/bin/python", "--python-path", "/srv"
    )
    assert code == 0
    assert "interpreter: /srv/.venv/bin/python" in out
    assert err.endswith("1 task: 1 job, 1 schedule; nothing was left out\n")
    assert not (tmp_path / "executed").exists()
    for text, reason in (
        ("def", "line 1: it is not Python"),
        ('{"a"', "it is not JSON"),
        ("a = '\0'", "it is not Python"),
    ):
        file.write_text(text)
        code, out, err = toban("import", "celery-beat", str(file))
        assert (code, out, err.count("\n")) == (65, "", 1)
        assert reason in err
    file.write_text("x = 1\n")
    assert "there is no beat_schedule" in toban("import", "celery-beat", str(file))[2]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["a.b", "*", "mon", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["minute", "run_every", "queue", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)
KEYS = ("task", "schedule", "args", "kwargs", "options", "timezone", "enabled")


@given(keys=st.dictionaries(st.sampled_from(KEYS), VALUES), python=st.booleans())
def test_any_entry(keys: dict[str, Any], python: bool) -> None:
    body = {"x": {"task": "a.b", **keys}}
    text = f"beat_schedule = {body!r}" if python else json.dumps(body)
    try:
        entries = imported(text).entries
    except Unreadable:
        pytest.fail("it is readable")
    assert [bool(entry.documents) for entry in entries] == [entry.fate is not Fate.LOST for entry in entries]
