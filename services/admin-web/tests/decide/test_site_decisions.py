"""The pure parts of the site: names, languages, words, filters, lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_admin_web.decide import hosts, languages, log_text, opened, rules, spans, tones
from toban_admin_web.decide.filters import RunFilter, parse_filter
from toban_admin_web.decide.messages import Messages, places
from toban_admin_web.decide.records import LogLine
from toban_domain.run import RunState

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("127.0.0.1:8080", "127.0.0.1"),
        ("LocalHost", "localhost"),
        ("[::1]:8080", "::1"),
        ("[::1]", "::1"),
        ("a.example", "a.example"),
        ("[::1]x", ""),
        ("a:b", ""),
        ("a:1:2", ""),
        ("", ""),
    ],
)
def test_the_name_in_a_host_header(header: str, name: str) -> None:
    assert hosts.name_of(header) == name


def test_hosts_that_are_served() -> None:
    assert all(hosts.allowed(one, ()) for one in ("localhost", "127.0.0.1:1", "127.9.9.9", "[::1]:5"))
    assert not any(
        hosts.allowed(one, ()) for one in ("10.0.0.1", "localhost.x", "127.0.0.1.x", "0.0.0.0", "2130706433")
    )
    assert hosts.allowed("A.example:9", ["a.example"]) and not hosts.allowed("b.example", ["a.example"])


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("fr, de;q=0.5", "en"),
        ("ja", "ja"),
        ("ja-JP, en;q=0.8", "ja"),
        ("en;q=0.2, zh-TW;q=0.9, ja;q=0.3", "zh-Hant"),
        ("zh-Hant-HK", "zh-Hant"),
        ("zh-CN", "zh-Hant"),
        ("fr, ja;q=0.1", "ja"),
        ("ja;q=0", "en"),
        ("ja;q=many", "en"),
        ("*", "en"),
        ("jazz", "en"),
    ],
)
def test_the_best_language(header: str, language: str) -> None:
    assert languages.negotiated(header) == language


@given(st.text())
def test_any_header_gives_a_language(header: str) -> None:
    assert languages.negotiated(header) in languages.LANGUAGES
    assert languages.asked(header) in (*languages.LANGUAGES, "")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, ("span.s", {"s": "0.00"})),
        (0.421, ("span.s", {"s": "0.42"})),
        (59.94, ("span.s", {"s": "59.9"})),
        (192, ("span.ms", {"m": "3", "s": "12"})),
        (7500, ("span.hm", {"h": "2", "m": "05"})),
        (3 * 86_400 + 4 * 3600, ("span.dh", {"d": "3", "h": "04"})),
    ],
)
def test_durations(seconds: float, words: spans.Words) -> None:
    assert spans.duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, ("age.now", {})),
        (5, ("age.ago.s", {"n": "5"})),
        (90, ("age.ago.s", {"n": "90"})),
        (130, ("age.ago.m", {"n": "2"})),
        (-3700, ("age.in.h", {"n": "1"})),
        (-200_000, ("age.in.d", {"n": "2"})),
    ],
)
def test_ages(seconds: float, words: spans.Words) -> None:
    assert spans.age(NOW - timedelta(seconds=seconds), NOW) == words


def test_took_until_now_and_before_the_start() -> None:
    assert spans.took(None, None, NOW) is None
    assert spans.took(NOW - timedelta(seconds=5), None, NOW) == ("span.s", {"s": "5.0"})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"interval_seconds": 5}, ("rule.every.s", {"n": "5"})),
        ({"interval_seconds": 90}, ("rule.every.s", {"n": "90"})),
        ({"every_n_minutes": 60}, ("rule.every.h", {"n": "1"})),
        ({"interval_seconds": 172_800}, ("rule.every.d", {"n": "2"})),
        ({"hourly_at_minute": 7}, ("rule.hourly", {"minute": "07"})),
        ({"daily_at": "03:00"}, ("rule.daily", {"time": "03:00"})),
        ({"cron": "0 3 * * *"}, ("rule.cron", {"cron": "0 3 * * *"})),
        ({"moon": "full"}, None),
    ],
)
def test_rules_in_words(spec: dict[str, object], words: spans.Words | None) -> None:
    assert rules.rule_words(spec) == words


def test_weekly_rules() -> None:
    assert rules.weekly({"weekly_at": "mon, Thursday 03:00"}) == (("mon", "thu"), "03:00")
    assert rules.weekly({"weekly_at": "mon-fri 09:00"}) == (("mon", "tue", "wed", "thu", "fri"), "09:00")
    assert rules.weekly({"weekly_at": "sat-mon,wed 09:00"}) == (("mon", "wed", "sat", "sun"), "09:00")
    assert rules.weekly({"weekly_at": "mon-never 09:00"}) is None
    assert rules.weekly({"weekly_at": "mon,THU 03:00"}) == (("mon", "thu"), "03:00")
    assert rules.weekly({"weekly_at": "someday 03:00"}) is None and rules.weekly({}) is None


def test_lines_without_codes() -> None:
    assert log_text.clean("\x1b[1;31mred\x1b[0m\ttab \x07bell \u202eturned") == "red\ttab bell turned"
    assert log_text.clean(" 10 %\r 90 %\r100 %") == "100 %"
    assert log_text.clean("done\r") == "done"
    assert log_text.clean("\x1b]0;title\x07text") == "text"


@given(st.text(alphabet=st.characters()))
def test_clean_lines_are_one_line_without_control_characters(text: str) -> None:
    shown = log_text.clean(text)
    assert len(shown.splitlines()) <= 1
    assert not [one for one in shown if one != "\t" and (ord(one) < 32 or 127 <= ord(one) < 160)]
    assert log_text.clean(shown) == shown


def _line(seq: int, text: str, *, stream: str = "stdout", partial: bool = False, token: int = 1) -> LogLine:
    return LogLine(token=token, seq=seq, at=None, stream=stream, text=text, partial=partial)


def test_parts_of_a_line_are_joined_within_a_stream_and_an_attempt() -> None:
    lines = [
        _line(1, "a", partial=True),
        _line(2, "b", partial=True),
        _line(3, "c"),
        _line(4, "d", partial=True),
        _line(5, "e", stream="stderr"),
        _line(6, "f", partial=True),
        _line(1, "g", token=2),
    ]
    assert [one.text for one in log_text.joined(lines)] == ["abc", "d", "e", "f", "g"]


@given(st.dictionaries(st.sampled_from(["job", "schedule", "state", "ahead", "limit", "cursor"]), st.text()))
def test_any_address_is_a_filter_that_can_be_written_again(query: dict[str, str]) -> None:
    wanted = parse_filter(query)
    assert wanted.limit in (25, 50, 100, 200)
    assert set(wanted.query().states) <= {state.value for state in RunState}
    assert parse_filter(wanted.address(cursor=wanted.cursor)) == wanted


def test_groups_of_states() -> None:
    live = set(RunFilter(state="live").query().states)
    ended = set(RunFilter(state="ended").query().states)
    assert live | ended == {state.value for state in RunState} and not live & ended
    assert "SUCCEEDED" not in RunFilter(state="unsuccessful").query().states
    assert all(tones.is_over(state) for state in ended) and not any(tones.is_over(state) for state in live)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", None),
        ("[]", None),
        ("{", None),
        ("[" * 5000, None),
        ('{"percentage": true}', None),
        ('{"percentage": 140, "summary": "x"}', opened.Progress(100.0, "x")),
        ('{"percentage": -1}', opened.Progress(0.0, "")),
        ('{"summary": 7, "percentage": 40.5}', opened.Progress(40.5, "")),
        ('{"summary": "only words"}', opened.Progress(None, "only words")),
    ],
)
def test_progress(text: str, seen: opened.Progress | None) -> None:
    assert opened.progress(text) == seen


@pytest.mark.parametrize("levels", [450, 900, 5000])
def test_what_is_nested_too_deeply_to_be_indented_is_shown_as_it_is(levels: int) -> None:
    deep = "[" * levels + "]" * levels
    assert "".join(opened.pretty(deep).split()) == deep


def test_health_documents() -> None:
    status, checks = opened.health(
        '{"status": "ok", "checks": {"a": {"status": "ok", "value": -0.0}, "b": {"status": "ok", "value": '
        '{"not_after": "2036-11-18T14:28:17+00:00", "serial": "' + "f" * 40 + '"}}, "c": 7}}'
    )
    assert status == "ok" and [check.name for check in checks] == ["a", "b"]
    assert checks[0].values == (("", "0"),)
    assert checks[1].values == (("not_after", datetime(2036, 11, 18, 14, 28, 17, tzinfo=UTC)),)
    assert opened.health("garbage") == ("unknown", [])


def test_messages_fall_back_to_english_then_to_the_name() -> None:
    messages = Messages({"en": {"a": "{n} of {m}", "b": "bee"}, "ja": {"a": "{m} の {n}"}})
    assert messages.say("ja", "a", n=1, m="<x>") == "<x> の 1"
    assert messages.say("ja", "b") == "bee" and messages.say("ja", "c") == "c"
    assert messages.say("en", "a", n="{m}") == "{m} of {m}", "values are not looked into, unknown places stay"
    assert places("{n} of {m}") == {"n", "m"}
