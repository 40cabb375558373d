"""Times and spans on the command line: the moments that they name, and texts that name none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_cli.schedule_options import read_every
from toban_cli.times import read_start_time, read_time_bound, span_seconds
from toban_domain.errors import TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.clock import SystemClock
from toban_schedule import load_zone

Toban = Callable[..., tuple[int, str, str]]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BERLIN = "Europe/Berlin"


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "zone", "moment"),
    [
        ("+10m", "", "2026-03-01T12:10:00"),
        ("+1h30m", BERLIN, "2026-03-01T13:30:00"),
        ("+2d", "", "2026-03-03T12:00:00"),
        ("+1w1s", "", "2026-03-08T12:00:01"),
        ("2026-12-01T09:00:00Z", "", "2026-12-01T09:00:00"),
        ("2026-12-01T09:00+01:00", "", "2026-12-01T08:00:00"),
        ("2026-12-01 09:00", BERLIN, "2026-12-01T08:00:00"),
        ("2026-07-01 09:00:30", BERLIN, "2026-07-01T07:00:30"),
        ("2026-12-01 09:00", "UTC", "2026-12-01T09:00:00"),
    ],
)
def test_moments(text: str, zone: str, moment: str) -> None:
    assert read_start_time(text, NOW, zone) == datetime.fromisoformat(moment).replace(tzinfo=UTC)


@pytest.mark.usefixtures("in_new_york")
def test_this_machines_zone() -> None:
    assert read_start_time("2026-07-01 09:00", NOW) == datetime(2026, 7, 1, 13, tzinfo=UTC)
    with pytest.raises(TobanError, match="does not exist in this machine's zone"):
        read_start_time("2026-03-08 02:30", NOW)
    with pytest.raises(TobanError, match=r"write 2026-11-01T01:30:00-04:00 or 2026-11-01T01:30:00-05:00"):
        read_start_time("2026-11-01 01:30", NOW)


@pytest.mark.parametrize(
    ("text", "zone", "words"),
    [
        ("soon", "", "'soon' is not a time; write"),
        ("", "", "is not a time"),
        ("+", "", "is not a time"),
        ("+10", "", "is not a time"),
        ("10m", "", "is not a time"),
        ("2026-12-01", "", "has no time of day"),
        ("2026-02-30 09:00", "", "is not a time"),
        ("+99999999999d", "", "too far ahead"),
        (
            "2026-12-01 09:00",
            "Europe/Berln",
            "--timezone: there is no zone 'Europe/Berln'; did you mean Europe/Berlin",
        ),
        ("+10m", "Europe/Berln", "--timezone: there is no zone 'Europe/Berln'"),
        ("2026-12-01T09:00:00Z", BERLIN, "give one of them"),
        ("2026-03-29 02:30", BERLIN, "does not exist in Europe/Berlin"),
        ("2026-10-25 02:30", BERLIN, "write 2026-10-25T02:30:00+02:00 or 2026-10-25T02:30:00+01:00"),
        ("2026-03-01T11:00:00Z", "", "is in the past (by 1:00:00); name a later time, or leave --at out"),
        ("2026-03-01T12:00:00Z", "", "is in the past (by 0:00:00)"),
    ],
)
def test_texts_that_name_no_moment(text: str, zone: str, words: str) -> None:
    with pytest.raises(TobanError) as caught:
        read_start_time(text, NOW, zone)
    assert words in caught.value.message
    assert "\n" not in caught.value.message


@given(
    st.datetimes(NOW.replace(tzinfo=None) + timedelta(days=1), NOW.replace(tzinfo=None) + timedelta(days=700)),
    st.sampled_from([BERLIN, "Asia/Tokyo", "America/New_York"]),
)
def test_clocks_show_what_was_asked_for(wanted: datetime, zone: str) -> None:
    wanted = wanted.replace(microsecond=0)
    try:
        moment = read_start_time(str(wanted), NOW, zone)
    except TobanError as error:
        assert "does not exist" in error.message or "comes twice" in error.message
        return
    assert moment.astimezone(load_zone(zone)).replace(tzinfo=None) == wanted


def test_run_start_at(cluster: Any, toban: Toban) -> None:
    cluster.control.answers["StartRuns"] = pb.StartRunsResponse(runs=[pb.StartedRun(run_id=12, created=True)])
    code, out, _ = toban("run", "start", "hello", "--at", "+10m")
    assert code == 0
    assert out.startswith("run 12 starts at ")
    assert out.endswith(("(in 10m)\n", "(in 9m)\n"))
    sent = cluster.control.requests[0].runs[0].scheduled_for.ToDatetime(tzinfo=UTC)
    assert abs(sent - SystemClock().wall() - timedelta(minutes=10)) < timedelta(seconds=30)
    code, _, _ = toban("run", "start", "hello", "--at", "2099-12-01 09:00", "--timezone", BERLIN, "-o", "name")
    assert cluster.control.requests[1].runs[0].scheduled_for.ToDatetime(UTC) == datetime(2099, 12, 1, 8, tzinfo=UTC)


def test_without_it_no_time_is_sent(cluster: Any, toban: Toban) -> None:
    cluster.control.answers["StartRuns"] = pb.StartRunsResponse(runs=[pb.StartedRun(run_id=12, created=True)])
    assert toban("run", "start", "hello", "-o", "name") == (0, "12\n", "")
    assert not cluster.control.requests[0].runs[0].HasField("scheduled_for")
    code, _, err = toban("run", "start", "hello", "--timezone", BERLIN)
    assert code == 64
    assert "is for --at" in err
    # An empty variable of a script is a mistake, and not "now".
    assert toban("run", "start", "hello", "--at", "")[0] == 65
    assert len(cluster.control.requests) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("0s", 0),
        ("5", None),
        ("m", None),
        ("1.5h", None),
        ("", None),
    ],
)
def test_spans(text: str, seconds: int | None) -> None:
    assert span_seconds(text) == seconds


def test_endless_numbers_are_out_of_range_everywhere() -> None:
    endless = "9" * 6000 + "s"
    with pytest.raises(TobanError, match="too far ahead"):
        read_start_time(f"+{endless}", NOW)
    with pytest.raises(TobanError, match="too long ago"):
        read_time_bound("--since", endless, NOW)
    with pytest.raises(TobanError, match="out of range"):
        read_every(endless)
