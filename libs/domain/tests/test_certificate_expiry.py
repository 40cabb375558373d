"""When the end of a certificate is near."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from toban_domain.certificate_expiry import ends_soon

ENDS = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("life", "near"),
    [
        # As the chart has them issued: renewed ten days before their end.
        (timedelta(days=30), timedelta(days=3)),
        (timedelta(days=3650), timedelta(days=14)),
        (timedelta(hours=1), timedelta(minutes=6)),
        (None, timedelta(days=3)),
    ],
)
def test_the_last_tenth_and_at_most_two_weeks(life: timedelta | None, near: timedelta) -> None:
    begins = None if life is None else ENDS - life
    second = timedelta(seconds=1)
    assert not ends_soon(ENDS - near - second, ends=ENDS, begins=begins)
    assert ends_soon(ENDS - near, ends=ENDS, begins=begins)
    assert ends_soon(ENDS + second, ends=ENDS, begins=begins)
