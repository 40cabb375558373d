"""Where a reader of a live log goes on, and that it comes to an end and only then."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_admin_web.decide.follow import QUIET_SECONDS, SEAL_SECONDS, Cursor, Next, Seen, after_reading, parse_cursor

seens = st.builds(
    Seen,
    cursor=st.builds(Cursor, st.integers(0, 5), st.integers(0, 9)),
    sealed=st.booleans(),
    tokens=st.lists(st.integers(1, 5), unique=True),
    over_seconds=st.none() | st.floats(0, 20),
    has_output=st.booleans(),
)


@pytest.mark.parametrize(
    "text",
    ["", "1", "1:", ":1", "a:b", "-1:2", "1:2:3", "٣:1", f"{1 << 63}:1", f"1:{(1 << 63) - 1}", "9" * 5000 + ":1"],
)
def test_what_is_no_cursor_is_the_start(text: str) -> None:
    assert parse_cursor(text) == Cursor()


@given(st.builds(Cursor, st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 2)))
def test_a_cursor_survives_its_text(cursor: Cursor) -> None:
    assert parse_cursor(str(cursor)) == cursor


@given(seens)
def test_a_run_that_goes_on_never_ends_its_log(seen: Seen) -> None:
    step, _ = after_reading(seen)
    assert seen.over_seconds is not None or step in (Next.READ, Next.WAIT)


@given(seens)
def test_a_run_that_was_over_long_ago_ends_its_log(seen: Seen) -> None:
    later = Seen(
        cursor=seen.cursor,
        sealed=seen.sealed,
        tokens=seen.tokens,
        over_seconds=SEAL_SECONDS,
        has_output=seen.has_output,
    )
    step, cursor = after_reading(later)
    # Unless another attempt is to be read, which brings the cursor forward.
    assert step in (Next.END, Next.INCOMPLETE) or cursor.token > seen.cursor.token


@given(seens)
def test_a_reader_never_goes_back(seen: Seen) -> None:
    _, cursor = after_reading(seen)
    assert (cursor.token, cursor.seq) >= (seen.cursor.token, seen.cursor.seq)


HERE = Cursor(1, 5)


def seen(cursor: Cursor = HERE, **given: object) -> Seen:
    values = {"sealed": False, "tokens": [1], "over_seconds": None, "has_output": True}
    return Seen(cursor=cursor, **(values | given))  # type: ignore[arg-type]


def test_the_steps() -> None:
    assert after_reading(seen()) == (Next.READ, Cursor(1, 5))
    assert after_reading(seen(sealed=True)) == (Next.WAIT, Cursor(1, 5))
    assert after_reading(seen(sealed=True, tokens=[1, 9, 3])) == (Next.READ, Cursor(3, 0))
    assert after_reading(seen(sealed=True, over_seconds=0.0))[0] is Next.END
    assert after_reading(seen(over_seconds=0.0))[0] is Next.READ
    assert after_reading(seen(over_seconds=SEAL_SECONDS))[0] is Next.INCOMPLETE
    assert after_reading(seen(Cursor(), over_seconds=QUIET_SECONDS, has_output=False))[0] is Next.END
    assert after_reading(seen(Cursor(), tokens=[], over_seconds=0.0, has_output=False))[0] is Next.END
