"""The line that counts what was left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.dropped_lines import DATABASE_LIMIT, is_of_database, left_out_lines, left_out_words


@given(st.integers(1, 10**15))
def test_what_is_written_is_understood(lines: int) -> None:
    assert left_out_lines(left_out_words(lines, size="1 MiB", limit="5 MiB (max_mb)").encode()) == lines


def test_whose_line_it_is() -> None:
    theirs = left_out_words(7, size="1 MiB", limit=f"{DATABASE_LIMIT}, 50 GB (log_budget_db_gb)").encode()
    mine = left_out_words(7, size="1 MiB", limit="5 MiB (max_mb)").encode()
    assert (is_of_database(theirs), is_of_database(mine)) == (True, False)


@pytest.mark.parametrize(
    "text", ["", "killed", "… this line (1 B) and what follows are left out", "… , lines, ", "… 12 lives, "]
)
def test_other_lines_stand_for_nothing(text: str) -> None:
    assert left_out_lines(text.encode()) == 0
