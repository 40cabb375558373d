"""Days that may get partitions."""

from datetime import date

import pytest

from toban_log_archiver.decide.partition_window import ahead, may_make


@pytest.mark.parametrize(("day", "may"), [(1, True), (2, True), (3, False), (-30, True), (-31, False)])
def test_days_near_today_may_be_made(day: int, may: bool) -> None:
    today = date(2031, 3, 1)
    assert may_make(date.fromordinal(today.toordinal() + day - 1), today=today) is may
    first, last = ahead(today)
    assert first < today < last
