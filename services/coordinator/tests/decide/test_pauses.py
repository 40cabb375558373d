"""Which ends a pause may have, and which have come."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_coordinator.decide.schedules.pauses import LONGEST_DAYS, PauseEnd, check_until, split_due
from toban_domain.errors import ErrorCode, TobanError

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def test_a_time_that_is_past_or_far_ahead_is_refused(subtests: Any) -> None:
    for until, said in (
        (NOW, "until is 2026-11-29T12:00:00Z, which is past: it is 2026-11-29T12:00:00Z; name a later time"),
        (NOW - timedelta(days=1), "which is past"),
        (
            NOW + timedelta(days=LONGEST_DAYS, seconds=1),
            "until is 2027-11-30T12:00:01Z, more than 366 days ahead; name an earlier time, or none to pause without an end",
        ),
    ):
        with subtests.test(str(until)), pytest.raises(TobanError) as caught:
            check_until(until, NOW)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT and said in caught.value.message
    for until in (None, NOW + timedelta(seconds=1), NOW + timedelta(days=LONGEST_DAYS)):
        check_until(until, NOW)


def test_ends_come_at_their_time() -> None:
    ends = [PauseEnd(kind="job", name=f"{n}", until=NOW + timedelta(seconds=n)) for n in (-5, 0, 3, 9)]
    assert split_due(ends, NOW) == (ends[:2], 3.0)
    assert split_due(ends, NOW + timedelta(seconds=9)) == (ends, None)
    assert split_due([], NOW) == ([], None)
