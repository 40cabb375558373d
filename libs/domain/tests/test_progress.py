"""What jobs say of themselves: bounds, cleaning, the way through JSON."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.progress import MAX_SUMMARY, Progress, clean

AT = datetime(2026, 11, 21, 3, 0, 1, 500_000, tzinfo=UTC)


@given(st.floats(0, 100), st.text())
def test_what_is_stored_is_read_back(percentage: float, words: str) -> None:
    said = Progress(percentage=percentage, summary=clean(words), at=AT)
    again = Progress.from_json(json.loads(json.dumps(said.to_json())))
    assert again == said
    assert len(again.summary) <= MAX_SUMMARY and "\n" not in again.summary and "\0" not in again.summary


def test_whole_percentages_are_whole_numbers() -> None:
    assert Progress(percentage=40.0, at=AT).to_json()["percentage"] == 40
    assert Progress(percentage=40.5, at=AT).to_json()["percentage"] == 40.5


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"percentage": 101, "at": AT.isoformat()},
        {"percentage": -1, "at": AT.isoformat()},
        {"percentage": True, "at": AT.isoformat()},
        {"percentage": float("nan"), "at": AT.isoformat()},
        {"percentage": "40", "at": AT.isoformat()},
        {"percentage": 40},
        {"percentage": 40, "at": "yesterday"},
        {"percentage": 40, "at": "2026-11-21T03:00:00"},
        {"percentage": 10**400, "at": AT.isoformat()},
        {"percentage": -(10**400), "at": AT.isoformat()},
        {"percentage": 40, "at": "0001-01-01T00:00:00+14:00"},
        {"percentage": 40, "at": "9999-12-31T23:59:59-12:00"},
    ],
)
def test_what_is_no_progress_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        Progress.from_json(data)


NUMBERS = st.one_of(st.none(), st.booleans(), st.integers(), st.integers(10**300, 10**420), st.floats(), st.text())
TIMES = st.one_of(
    st.text(max_size=40),
    st.datetimes(timezones=st.timezones() | st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m)))).map(
        datetime.isoformat
    ),
    st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?[+-][0-9]{2}:?[0-9]{2}"),
)


@given(st.fixed_dictionaries({}, optional={"percentage": NUMBERS, "summary": NUMBERS, "at": TIMES | NUMBERS}))
def test_anything_is_progress_or_a_value_error(data: Any) -> None:
    try:
        said = Progress.from_json(data)
    except ValueError:
        return
    assert Progress.from_json(said.to_json()) == said


def test_words_from_elsewhere_are_cleaned() -> None:
    said = Progress.from_json({"percentage": 1, "summary": "a\x1b[31m\n\0b" + "x" * 300, "at": AT.isoformat()})
    assert said.summary.startswith("a [31m bxxx") and len(said.summary) == MAX_SUMMARY
