"""Pure parts of webhooks and notifications: forms, quiet hours, waits, breakers."""

import json
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toban_coordinator.decide.notifications.quiet_hours import quiet_until
from toban_coordinator.decide.notifications.webhook_forms import FORMS, SMTP, body, subject, summary
from toban_coordinator.decide.notifications.webhooks import (
    BACKOFF_SECONDS,
    MAX_BREAKER_SECONDS,
    TryResult,
    after_try,
    check_states,
    pause_seconds,
)
from toban_domain.errors import TobanError
from toban_domain.notify import NotifyRule, QuietHours

NOW = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)
FAILED = {"id": 7, "job": "load", "state": "FAILED", "reason": "exit_code", "exit_code": 3, "error": "<!channel> & co"}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-11-23T20:59:59+00:00", None),
        ("2026-11-23T21:00:00+00:00", "2026-11-24T06:00:00+00:00"),
        ("2026-11-24T05:59:59+00:00", "2026-11-24T06:00:00+00:00"),
        ("2026-11-24T06:00:00+00:00", None),
        # Summer time: two hours ahead of UTC.
        ("2026-07-01T20:30:00+00:00", "2026-07-02T05:00:00+00:00"),
        # The night in which clocks go forward has an hour less.
        ("2026-03-28T22:00:00+00:00", "2026-03-29T05:00:00+00:00"),
    ],
)
def test_quiet_hours_over_midnight(now: str, until: str | None) -> None:
    hours = QuietHours(start="22:00", end="07:00", timezone="Europe/Berlin")
    assert quiet_until(hours, at(now)) == (at(until) if until else None)


@pytest.mark.parametrize(
    ("now", "quiet"), [("11:59", False), ("12:00", True), ("12:59", True), ("13:00", False), ("23:00", False)]
)
def test_quiet_hours_within_a_day(now: str, quiet: bool) -> None:
    hours = QuietHours(start="12:00", end="13:00")
    assert (quiet_until(hours, at(f"2026-11-23T{now}:00+00:00")) is not None) is quiet


@given(st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)), st.times(), st.times())  # noqa: DTZ001
def test_the_end_of_quiet_hours_is_later_and_not_quiet(now: datetime, start: time, end: time) -> None:
    hours = QuietHours(start=f"{start:%H:%M}", end=f"{end:%H:%M}", timezone="America/New_York")
    found = quiet_until(hours, now.replace(tzinfo=UTC))
    if hours.start != hours.end and found is not None:
        assert now.replace(tzinfo=UTC) < found <= now.replace(tzinfo=UTC) + timedelta(hours=26)
        assert quiet_until(hours, found) is None


def test_a_zone_of_a_newer_version_is_utc() -> None:
    hours = QuietHours(start="08:00", end="10:00", timezone="Mars/Olympus")
    assert quiet_until(hours, NOW) == at("2026-11-23T10:00:00+00:00")


def test_what_people_read() -> None:
    assert summary("run.failed", {"run": FAILED}) == (
        "Job load: run 7 failed (state FAILED, reason exit_code, exit code 3)\n<!channel> & co"
    )
    said = summary("run.failed", {"run": {**FAILED, "error": "exit code 3", "last_line": "no such table: t"}})
    assert said.partition("\n")[2] == "no such table: t", "the exit code alone does not say why"
    late = {**FAILED, "reason": "timeout", "error": "ran longer than 5 s", "last_line": "part 3"}
    assert summary("run.timed_out", {"run": late}).partition("\n")[2] == "ran longer than 5 s"
    assert summary("job.long", {"run": {"id": 7, "job": "load", "state": "RUNNING"}}) == (
        "Job load: run 7 lasts longer than it should (state RUNNING)"
    )
    missing = {"job": {"name": "load", "since": "2026-11-20T00:00:00+00:00", "expected_within_seconds": 3600}}
    assert summary("job.missing", missing) == (
        "Job load has not succeeded since 2026-11-20T00:00:00+00:00; expected within 3600 s."
    )
    assert summary("webhook.test", {"webhook": "chat"}) == "Test of webhook chat: it arrives."


def test_chat_services_get_text_without_markup() -> None:
    slack = json.loads(body("slack", "run.failed", NOW, {"run": FAILED}))
    assert "&lt;!channel&gt; &amp; co" in slack["text"] and slack["blocks"][0]["text"]["type"] == "plain_text"
    teams = json.loads(body("teams", "run.failed", NOW, {"run": FAILED}))
    card = teams["attachments"][0]["content"]
    assert card["body"][1]["inlines"] == [{"type": "TextRun", "text": "<!channel> & co"}]


@given(
    st.sampled_from([form for form in FORMS if form != SMTP]),
    st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none())),
)
def test_every_form_is_json_whatever_a_run_says(form: str, run: dict[str, Any]) -> None:
    assert json.loads(body(form, "run.failed", NOW, {"run": run}))


@example({"job": "\n"})
@given(st.dictionaries(st.sampled_from(["id", "job", "state", "error"]), st.text()))
def test_mail_is_text_and_its_subject_one_line_whatever_a_run_says(run: dict[str, Any]) -> None:
    assert body(SMTP, "run.failed", NOW, {"run": run}).decode().endswith("\n\n2026-11-23 09:00:00 UTC\n")
    line = subject("run.failed", {"run": run})
    assert line.startswith("[Toban] Job ") and line.isprintable() and len(line) <= 160


def test_waits_between_tries() -> None:
    assert after_try(1, TryResult(status=200)).state == "delivered"
    assert after_try(1, TryResult(error="x")) == ("pending", 5.0)
    assert after_try(1, TryResult(error="x", retry_after=120)) == ("pending", 120.0)
    assert after_try(1, TryResult(error="x", retry_after=10**8)) == ("pending", 3600.0)
    assert after_try(len(BACKOFF_SECONDS), TryResult(error="x")).state == "pending"
    assert after_try(len(BACKOFF_SECONDS) + 1, TryResult(error="x")).state == "failed"
    assert after_try(1, TryResult(error="x", permanent=True)).state == "failed"
    assert [pause_seconds(count) for count in (0, 4, 5, 6, 9, 10**6)] == [0, 0, 30, 60, 480, MAX_BREAKER_SECONDS]


def test_states() -> None:
    assert check_states([]) == ["FAILED", "TIMED_OUT", "EXPIRED"]
    assert check_states(["NONE"]) == [] and check_states(["LATE", "FAILED"]) == ["FAILED", "LATE"]
    with pytest.raises(TobanError, match="NONE is no state in which a run ends"):
        check_states(["NONE", "FAILED"])


def test_a_rule_keeps_its_form() -> None:
    hours = QuietHours(start="22:00", end="07:00", timezone="Europe/Berlin")
    rule = NotifyRule(webhook="chat", on=("failed", "long"), long_after_seconds=60, quiet_hours=hours)
    assert NotifyRule.from_json(rule.to_json()) == rule
    assert NotifyRule.from_json({"webhook": "chat"}).to_json() == {"webhook": "chat", "on": ["failed"]}
