"""What `@job` declares, as manifests; and what it refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from toban.declaring import keys, model
from toban.declaring.model import DeclarationError, Place, declared
from toban.jobs import job
from toban_manifests.read import Document, read_manifests
from toban_schedule.rule import problems

PLACE = Place(
    folder="/srv/shop",
    interpreter="/srv/venv/bin/python",
    project="shop",
    label=keys.PROJECT_LABEL,
    job={"priority": 2},
)


@pytest.fixture(autouse=True)
def _nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_declared", {})


def report_sales(day: str = "today", *, copies: int = 1, to: Any = object) -> None:
    """Writes the report.

    It is long.
    """


def needs_day(day: str) -> None: ...


def takes_any(**payload: Any) -> None: ...


def only_position(day: str, /) -> None: ...


def test_a_function_is_a_job_with_a_schedule() -> None:
    decorated = job(
        cron="0 7 * * *",
        tz="Asia/Tokyo",
        payload={"copies": 2},
        timeout_seconds=60,
        labels={"team": "ops"},
        secrets=[{"name": "db"}],
        retry={"max_attempts": 3},
        schedule={"payload": {"day": "${{ slot.date }}"}},
    )(report_sales)
    assert decorated is report_sales, "the function stays as it is"
    [made] = declared()
    manifests = made.manifests(PLACE)
    assert manifests[0]["metadata"] == {
        "name": "report-sales",
        "description": "Writes the report.",
        "labels": {"team": "ops", "toban-project": "shop"},
    }
    assert manifests[0]["spec"] == {
        "default_payload": {"day": "today", "copies": 2},
        "priority": 2,
        "timeout_seconds": 60,
        "secrets": [{"name": "db"}],
        "retry": {"max_attempts": 3},
        "steps": [
            {
                "type": "python",
                "callable": f"{__name__}:report_sales",
                "python_path": ["/srv/shop"],
                "interpreter": "/srv/venv/bin/python",
            }
        ],
    }
    assert manifests[1]["spec"] == {
        "job": "report-sales",
        "cron": "0 7 * * *",
        "timezone": "Asia/Tokyo",
        "payload": {"day": "${{ slot.date }}"},
    }
    read_manifests([Document(body=one, source="here") for one in manifests], check_rule=problems)


def test_an_event_starts_a_function_with_any_payload() -> None:
    job(
        name="any", warm=True, payload={"a": 1}, trigger={"event_type": "order.paid", "payload": "{{ event.payload }}"}
    )(takes_any)
    job(trigger={"event_type": "order.paid", "payload": "{{ event.payload }}"})(needs_day)
    manifests = [one for made in declared() for one in made.manifests(PLACE)]
    assert [one["kind"] for one in manifests] == ["Job", "EventTrigger"] * 2
    assert manifests[0]["spec"]["steps"][0]["warm"] is True
    read_manifests([Document(body=one, source="here") for one in manifests], check_rule=problems)


REFUSED: tuple[tuple[dict[str, Any], Callable[..., None], str], ...] = (
    ({"cron": "@daily"}, needs_day, "the schedule starts it without 'day'; add a default, or give `payload`"),
    ({"trigger": {"event_type": "a"}}, needs_day, "the trigger starts it without 'day'"),
    ({"payload": {"dya": 1}}, needs_day, "payload has 'dya'; the function takes day"),
    ({}, only_position, "'day' is positional only; a payload has keyword arguments"),
    ({"timeout": 60}, needs_day, "`job` has 'timeout', which is no key; did you mean 'timeout_seconds'?"),
    ({"steps": []}, needs_day, "`job` has 'steps': the function is the step of @job"),
    ({"timezone": "UTC"}, needs_day, "`job` has 'timezone': this is the argument tz of @job"),
    ({"schedule": {"cron": "@daily"}}, needs_day, "`schedule` has 'cron': this is the argument cron of @job"),
    ({"tz": "UTC"}, needs_day, "has keys of a schedule without a rule; add one of cron, daily_at"),
    ({"cron": "@daily", "daily_at": "02:30"}, report_sales, "has cron and daily_at; give one of them"),
    ({"cron": "@daily", "tz": "Asia/Tokio"}, report_sales, "has timezone='Asia/Tokio', which is no time zone"),
    ({"payload": {"day": object()}}, report_sales, "`payload` cannot be written as JSON"),
    ({"labels": {"toban-project": "a"}}, report_sales, "has the label 'toban-project', which toban sync gives"),
)


def test_what_cannot_be_is_refused_where_it_is_declared(subtests: pytest.Subtests) -> None:
    for given, function, message in REFUSED:
        with subtests.test(message), pytest.raises(DeclarationError) as caught:
            job(**given)(function)
        text = str(caught.value)
        assert text.startswith(f"function '{__name__}:{function.__name__}'") and message in text, text
    assert declared() == []


def test_a_function_in_a_function_and_a_name_twice_are_refused() -> None:
    def inner() -> None: ...

    with pytest.raises(DeclarationError, match="is made in another function"):
        job()(inner)
    job(name="one")(needs_day)
    with pytest.raises(DeclarationError, match="the job 'one' is declared twice with different values"):
        job(name="one")(report_sales)
