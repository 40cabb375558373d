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
    generation_above,
    next_epoch,
    term_of,
)

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


@pytest.mark.seed(29)
@given(low, st.integers(1, 100), st.booleans())
def test_the_next_epoch_is_above_the_observed_one(observed: int, timeline: int, same: bool) -> None:
    epoch = next_epoch(observed=observed, timeline=timeline, same_cluster=same)
    assert same or Epoch.unpack(epoch).generation > Epoch.unpack(observed).generation
    assert epoch > observed
    assert term_of(epoch) == epoch
    assert Epoch.unpack(epoch).generation >= min(timeline, MAX_GENERATION)


@pytest.mark.parametrize(
    ("observed", "timeline", "same", "expected"),
    [
        (Epoch(0, 0), 1, True, Epoch(1, 1)),
        (Epoch(1, 7), 1, True, Epoch(1, 8)),
        (Epoch(1, 7), 2, True, Epoch(2, 1)),
        (Epoch(1, MAX_COUNTER), 1, True, Epoch(2, 1)),
        # Restored into a new server: lost commits may have used the epochs (1, 4), (1, 5) …
        (Epoch(1, 3), 1, False, Epoch(2, 1)),
        # Failed over: the timeline has increased.
        (Epoch(1, 3), 2, False, Epoch(2, 1)),
        (Epoch(4, 3), 2, False, Epoch(5, 1)),
    ],
)
def test_the_next_epoch_by_case(observed: Epoch, timeline: int, same: bool, expected: Epoch) -> None:
    assert Epoch.unpack(next_epoch(observed=observed.pack(), timeline=timeline, same_cluster=same)) == expected


@given(low)
def test_a_generation_above_is_above_all_of_the_one_before(epoch: int) -> None:
    above = generation_above(epoch)
    assert Epoch.unpack(above) == Epoch(Epoch.unpack(epoch).generation + 1, 0)
    assert epoch < above < next_epoch(observed=above, timeline=1)


def test_there_is_an_end() -> None:
    with pytest.raises(EpochExhausted):
        next_epoch(observed=Epoch(MAX_GENERATION, MAX_COUNTER).pack(), timeline=1)
    with pytest.raises(EpochExhausted):
        next_epoch(observed=0, timeline=MAX_GENERATION + 1)
    with pytest.raises(EpochExhausted):
        generation_above(Epoch(MAX_GENERATION, 1).pack())


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
