"""Which epochs of executors are believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_coordinator.decide.executors.epoch_claim import FRESH_SECONDS, Known, Verdict, judge
from toban_domain.epoch import MAX_GENERATION, Epoch, EpochExhausted, EpochProof

NOW = 1_800_000_000
LEADER = Epoch(3, 10).pack()
NOTHING = Verdict(raise_to=0, lost_commits=False, believed=True)


def known(**changes) -> Known:
    return Known(**{"epoch": LEADER, "settled": True, "now": NOW, "grant_seq": 100, **changes})


def proof(epoch: Epoch, grant_seq: int = 100, age: int = 1) -> EpochProof:
    return EpochProof(cluster_id="c", epoch=epoch.pack(), incarnation="i", grant_seq=grant_seq, signed_at=NOW - age)


@given(st.integers(0, (1 << 63) - 1), st.booleans())
def test_an_unsigned_claim_changes_nothing(claimed, settled):
    verdict = judge(claimed, None, known(settled=settled))
    assert verdict.raise_to == 0
    assert verdict.believed == (claimed >> 27 <= LEADER >> 27)


@given(st.integers(0, MAX_GENERATION - 1), st.integers(0, 100), st.integers(-9_999, 9_999))
def test_while_settled_a_signed_epoch_alone_changes_nothing(generation, grant_seq, age):
    signed = proof(Epoch(generation, 99), grant_seq, age)
    verdict = judge(signed.epoch, signed, known())
    assert verdict.raise_to == 0
    assert verdict.believed == (signed.epoch <= LEADER)


@pytest.mark.parametrize(
    ("grant_seq", "stored", "age", "lost"),
    [
        (101, 100, 1, True),
        (100, 100, 1, False),
        (1, None, 1, True),
        (0, None, 1, False),
        (101, 100, FRESH_SECONDS, True),
        (101, 100, FRESH_SECONDS + 1, False),
        (101, 100, -FRESH_SECONDS - 1, False),
    ],
    ids=["above", "held", "no row", "never granted", "an hour old", "older", "from the future"],
)
def test_a_signed_grant_that_is_not_held_proves_lost_commits(grant_seq, stored, age, lost):
    verdict = judge(LEADER, proof(Epoch(3, 10), grant_seq, age), known(grant_seq=stored))
    assert verdict == Verdict(raise_to=Epoch(4, 0).pack() if lost else 0, lost_commits=lost, believed=True)


def test_all_proofs_of_one_loss_take_one_generation():
    first = judge(LEADER, proof(Epoch(3, 12), 150), known())
    assert first.raise_to == Epoch(4, 0).pack()
    again = judge(Epoch(3, 12).pack(), proof(Epoch(3, 12), 170), known(epoch=first.raise_to, settled=False))
    assert again == NOTHING


def test_a_restored_database_takes_a_generation_above_a_signed_epoch_however_old_it_is():
    signed = proof(Epoch(5, 2), 100, 10**8)
    verdict = judge(signed.epoch | 7, signed, known(settled=False))
    assert verdict == Verdict(raise_to=Epoch(6, 0).pack(), lost_commits=False, believed=True)
    assert not judge(Epoch(7, 1).pack(), signed, known(settled=False)).believed, "more than it can prove"


def test_at_the_end_of_the_range_nothing_is_taken():
    with pytest.raises(EpochExhausted):
        judge(0, proof(Epoch(MAX_GENERATION, 1)), known(settled=False))
