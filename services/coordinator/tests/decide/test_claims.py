"""Which offers go to which call, and which locks are over."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from toban_coordinator.decide.external.claims import MAX_CHARACTERS, OfferedStep, SeenClaim, ended, hand_out, watch

SEEN = SeenClaim(
    cluster="1/1", run_id=1, token=5, lock_seq=3, lock_ttl_ms=10_000, timeout_ms=None, worker_type="transcode"
)
# ttl x 1.001 + 0.5 s
WAIT = 10.51


def offer(number: int, size: int = 2) -> OfferedStep:
    return OfferedStep(
        id=number,
        token=number,
        rank=0,
        scope="system",
        scope_id="",
        definition_id=1,
        definition_version=1,
        attempt=1,
        step=0,
        scheduled_for=datetime(2026, 1, 1, tzinfo=UTC),
        payload="x" * size,
        result=None,
    )


@given(st.integers(0, 30), st.lists(st.integers(1, 10), max_size=6))
def test_each_offer_goes_to_one_call_in_order(offers: int, limits: list[int]) -> None:
    given_out = hand_out([offer(n) for n in range(offers)], limits)
    assert [len(steps) <= limit for steps, limit in zip(given_out, limits, strict=True)] == [True] * len(limits)
    flat = [step.id for steps in given_out for step in steps]
    assert flat == list(range(min(offers, sum(limits))))


def test_an_answer_carries_so_much_and_at_least_one_step() -> None:
    large = MAX_CHARACTERS - 1
    first, second = hand_out([offer(1, large), offer(2, 2), offer(3, large)], [5, 5])
    assert ([s.id for s in first], [s.id for s in second]) == ([1], [2])
    assert [s.id for s in hand_out([offer(1, 2 * MAX_CHARACTERS)], [5])[0]] == [1]


def seen_over(claims: list[tuple[float, SeenClaim]]) -> list[tuple[int, bool]]:
    """What is over after reads at these times."""
    watched, last = {}, None
    for at, claim in claims:
        watched = watch(watched, [claim], read_returned_at=at, last_read_at=last)
        last = at
    assert last is not None
    return [(lock.claim.run_id, lock.timed_out) for lock in ended(watched, last)]


def reads(seconds: float, claim: SeenClaim, begin: float = 0.0) -> list[tuple[float, SeenClaim]]:
    return [(begin + n / 2, claim) for n in range(int(seconds * 2) + 1)] + [(begin + seconds, claim)]


def test_a_lock_is_over_only_after_a_whole_wait_without_an_extension() -> None:
    assert seen_over(reads(WAIT - 0.01, SEEN)) == []
    assert seen_over(reads(WAIT, SEEN)) == [(1, False)]
    extended = replace(SEEN, lock_seq=4)
    assert seen_over([*reads(10.0, SEEN), *reads(WAIT - 0.01, extended, begin=10.5)]) == []


def test_a_gap_between_reads_another_cluster_and_another_token_begin_the_wait_again() -> None:
    assert seen_over([*reads(9.0, SEEN), *reads(9.0, SEEN, begin=11.0)]) == []
    other = replace(SEEN, cluster="1/2")
    assert seen_over([*reads(9.0, SEEN), *reads(9.0, other, begin=9.5)]) == []
    assert seen_over([*reads(9.0, SEEN), *reads(9.0, replace(SEEN, token=6), begin=9.5)]) == []


def test_a_timeout_counts_from_the_claim_whatever_is_extended() -> None:
    claims = [(at, replace(SEEN, timeout_ms=4000, lock_seq=int(at * 2))) for at, _ in reads(4.504, SEEN)]
    assert seen_over(claims) == [(1, True)]
    assert seen_over(claims[:-2]) == []
