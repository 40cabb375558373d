"""Epochs and tokens grow, whatever happens to the stores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.epoch import (
    MAX_ATTEMPT,
    MAX_COUNTER,
    MAX_GENERATION,
    Epoch,
    EpochExhausted,
    Term,
    TokenSource,
    next_epoch,
    term_of,
)

values = st.integers(0, 2**63 - 1)
epochs = st.builds(Epoch, st.integers(0, MAX_GENERATION), st.integers(0, MAX_COUNTER), st.integers(0, MAX_ATTEMPT))
# Far enough from the end that a next epoch exists.
low = st.builds(lambda g, c: Epoch(g, c).pack(), st.integers(0, MAX_GENERATION - 2), st.integers(0, MAX_COUNTER))


@given(epochs)
def test_pack_and_unpack_are_inverse(epoch: Epoch) -> None:
    assert Epoch.unpack(epoch.pack()) == epoch
    assert 0 <= epoch.pack() < 2**63


@given(epochs, epochs)
def test_order_of_values_is_order_of_parts(left: Epoch, right: Epoch) -> None:
    parts = [(e.generation, e.counter, e.attempt) for e in (left, right)]
    assert (left.pack() < right.pack()) == (parts[0] < parts[1])


@pytest.mark.parametrize("value", [-1, 2**63])
def test_what_does_not_fit_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="not a 63-bit epoch"):
        Epoch.unpack(value)


@pytest.mark.parametrize(
    "parts", [(MAX_GENERATION + 1, 0, 0), (0, MAX_COUNTER + 1, 0), (0, 0, MAX_ATTEMPT + 1), (-1, 0, 0)]
)
def test_parts_that_do_not_fit_are_refused(parts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        Epoch(*parts).pack()


@given(
    low,
    st.integers(1, 100),
    st.one_of(st.just(0), values.filter(lambda v: v >> 51 < MAX_GENERATION - 1)),
    st.booleans(),
)
def test_the_next_epoch_is_above_everything_known(observed: int, timeline: int, seen: int, same: bool) -> None:
    epoch = next_epoch(observed=observed, timeline=timeline, seen_max=seen, same_cluster=same)
    assert same or Epoch.unpack(epoch).generation > Epoch.unpack(observed).generation
    assert epoch > max(observed, seen)
    assert term_of(epoch) == epoch
    assert Epoch.unpack(epoch).generation >= min(timeline, MAX_GENERATION)


@pytest.mark.parametrize(
    ("observed", "timeline", "seen", "expected"),
    [
        (Epoch(0, 0), 1, Epoch(0, 0), Epoch(1, 1)),
        (Epoch(1, 7), 1, Epoch(1, 7, 99), Epoch(1, 8)),
        (Epoch(1, 7), 2, Epoch(1, 7), Epoch(2, 1)),
        # PostgreSQL went back by a restore: executors know more than it does.
        (Epoch(1, 3), 1, Epoch(2, 9, 5), Epoch(3, 1)),
        (Epoch(1, 3), 1, Epoch(1, 9, 5), Epoch(1, 10)),
        (Epoch(1, MAX_COUNTER), 1, Epoch(0, 0), Epoch(2, 1)),
    ],
)
def test_the_next_epoch_by_case(observed: Epoch, timeline: int, seen: Epoch, expected: Epoch) -> None:
    assert Epoch.unpack(next_epoch(observed=observed.pack(), timeline=timeline, seen_max=seen.pack())) == expected


@pytest.mark.parametrize(
    ("observed", "timeline", "seen", "expected"),
    [
        # Restored into a new server: lost commits may have used the epochs (1, 4), (1, 5) …
        (Epoch(1, 3), 1, Epoch(1, 3), Epoch(2, 1)),
        (Epoch(1, 3), 1, Epoch(1, 9, 5), Epoch(2, 1)),
        # Failed over: the timeline has increased.
        (Epoch(1, 3), 2, Epoch(1, 3), Epoch(2, 1)),
        (Epoch(4, 3), 2, Epoch(1, 3), Epoch(5, 1)),
    ],
)
def test_another_cluster_has_a_generation_of_its_own(
    observed: Epoch, timeline: int, seen: Epoch, expected: Epoch
) -> None:
    epoch = next_epoch(observed=observed.pack(), timeline=timeline, seen_max=seen.pack(), same_cluster=False)
    assert Epoch.unpack(epoch) == expected


def test_there_is_an_end() -> None:
    with pytest.raises(EpochExhausted):
        next_epoch(observed=Epoch(MAX_GENERATION, MAX_COUNTER).pack(), timeline=1)
    with pytest.raises(EpochExhausted):
        next_epoch(observed=0, timeline=MAX_GENERATION + 1)


def test_tokens_of_a_term_grow_and_stay_below_the_next_term() -> None:
    term = Term(epoch=Epoch(1, 4).pack(), worker_id=1, incarnation="a", system_id="s", timeline=1)
    source = TokenSource(term)
    tokens = [source.next_token() for _ in range(100)]
    assert tokens == sorted(set(tokens))
    assert {term_of(token) for token in tokens} == {term.epoch}
    assert term.epoch < tokens[0]
    assert tokens[-1] < next_epoch(observed=term.epoch, timeline=1)
    assert source.left == MAX_ATTEMPT - 100


def test_a_term_runs_out_of_tokens() -> None:
    source = TokenSource(Term(epoch=Epoch(1, 4).pack(), worker_id=1, incarnation="a", system_id="s", timeline=1))
    source._drawn = MAX_ATTEMPT - 1
    assert source.next_token() == Epoch(1, 4, MAX_ATTEMPT).pack()
    with pytest.raises(EpochExhausted):
        source.next_token()
