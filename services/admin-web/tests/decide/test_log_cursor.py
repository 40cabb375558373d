"""The cursor of a live log's reader, and the end of the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_admin_web.decide.log_cursor import (
    NO_OUTPUT_WAIT_SECONDS,
    SEAL_WAIT_SECONDS,
    Cursor,
    NextStep,
    ReadState,
    next_step,
    parse_cursor,
)

states = st.builds(
    ReadState,
    cursor=st.builds(Cursor, st.integers(0, 5), st.integers(0, 9)),
    sealed=st.booleans(),
    tokens=st.lists(st.integers(1, 5), unique=True),
    ended_for=st.none() | st.floats(0, 20),
    has_output=st.booleans(),
)


@pytest.mark.parametrize(
    "text",
    ["", "1", "1:", ":1", "a:b", "-1:2", "1:2:3", "٣:1", f"{1 << 63}:1", f"1:{(1 << 63) - 1}", "9" * 5000 + ":1"],
)
def test_a_malformed_cursor_is_the_start(text: str) -> None:
    assert parse_cursor(text) == Cursor()


@given(st.builds(Cursor, st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 2)))
def test_a_cursor_survives_its_text(cursor: Cursor) -> None:
    assert parse_cursor(str(cursor)) == cursor


@given(states)
def test_the_log_of_a_live_run_never_ends(state: ReadState) -> None:
    step, _ = next_step(state)
    assert state.ended_for is not None or step in (NextStep.READ, NextStep.WAIT)


@given(states)
def test_the_log_of_a_run_that_ended_long_ago_ends(state: ReadState) -> None:
    later = ReadState(
        cursor=state.cursor,
        sealed=state.sealed,
        tokens=state.tokens,
        ended_for=SEAL_WAIT_SECONDS,
        has_output=state.has_output,
    )
    step, cursor = next_step(later)
    # Or another attempt follows, which moves the cursor forward.
    assert step in (NextStep.END, NextStep.INCOMPLETE) or cursor.token > state.cursor.token


@given(states)
def test_the_cursor_never_moves_back(state: ReadState) -> None:
    _, cursor = next_step(state)
    assert (cursor.token, cursor.seq) >= (state.cursor.token, state.cursor.seq)


HERE = Cursor(1, 5)


def read_state(cursor: Cursor = HERE, **given: object) -> ReadState:
    values = {"sealed": False, "tokens": [1], "ended_for": None, "has_output": True}
    return ReadState(cursor=cursor, **(values | given))  # type: ignore[arg-type]


def test_the_steps() -> None:
    assert next_step(read_state()) == (NextStep.READ, Cursor(1, 5))
    assert next_step(read_state(sealed=True)) == (NextStep.WAIT, Cursor(1, 5))
    assert next_step(read_state(sealed=True, tokens=[1, 9, 3])) == (NextStep.READ, Cursor(3, 0))
    assert next_step(read_state(sealed=True, ended_for=0.0))[0] is NextStep.END
    assert next_step(read_state(ended_for=0.0))[0] is NextStep.READ
    assert next_step(read_state(ended_for=SEAL_WAIT_SECONDS))[0] is NextStep.INCOMPLETE
    assert next_step(read_state(Cursor(), ended_for=NO_OUTPUT_WAIT_SECONDS, has_output=False))[0] is NextStep.END
    assert next_step(read_state(Cursor(), tokens=[], ended_for=0.0, has_output=False))[0] is NextStep.END
