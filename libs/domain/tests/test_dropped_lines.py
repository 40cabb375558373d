"""The line that counts what was left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.dropped_lines import DATABASE_LIMIT, dropped_line_count, dropped_lines_text, is_database_drop


@given(st.integers(1, 10**15))
def test_what_is_written_is_understood(lines: int) -> None:
    assert dropped_line_count(dropped_lines_text(lines, size="1 MiB", limit="5 MiB (max_mb)").encode()) == lines


def test_whose_line_it_is() -> None:
    theirs = dropped_lines_text(7, size="1 MiB", limit=f"{DATABASE_LIMIT}, 50 GB (log_budget_db_gb)").encode()
    mine = dropped_lines_text(7, size="1 MiB", limit="5 MiB (max_mb)").encode()
    assert (is_database_drop(theirs), is_database_drop(mine)) == (True, False)


@pytest.mark.parametrize(
    "text", ["", "killed", "… this line (1 B) and what follows are left out", "… , lines, ", "… 12 lives, "]
)
def test_other_lines_stand_for_nothing(text: str) -> None:
    assert dropped_line_count(text.encode()) == 0
