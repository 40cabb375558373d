"""Weighted round robin: whose turn it is, within one read and from one read to the next."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_coordinator.decide.placement.fair import RoundRobin, Scope, Shares

A, B, C = ("account", "a"), ("account", "b"), ("account", "c")


def order(turns: RoundRobin, *waiting: tuple[int, tuple[str, str], int], **weights: int) -> list[int]:
    return [run for _, run in turns.order(waiting, {("account", name): weight for name, weight in weights.items()})]


def test_scopes_take_turns_and_keep_their_own_order() -> None:
    runs = [(0, A, 1), (0, A, 2), (0, A, 3), (0, B, 4), (0, C, 5), (0, C, 6)]
    assert order(RoundRobin(), *runs) == [1, 4, 5, 2, 6, 3]


def test_a_weight_is_so_many_runs_a_turn() -> None:
    runs = [(0, A, 1), (0, A, 2), (0, A, 3), (0, B, 4), (0, B, 5)]
    assert order(RoundRobin(), *runs, a=2) == [1, 2, 4, 3, 5]


def test_a_higher_rank_goes_first() -> None:
    assert order(RoundRobin(), (1, C, 9), (0, A, 1), (0, B, 2)) == [9, 1, 2]


def reads(turns: RoundRobin, queues: dict[tuple[str, str], deque[int]]) -> list[tuple[int, tuple[str, str], int]]:
    """What PostgreSQL answers: scopes in order, from the one after `start` on."""
    names = sorted(name for name, items in queues.items() if items)
    later = [name for name in names if name > turns.start]
    return [(0, name, item) for name in [*later, *(n for n in names if n not in later)] for item in queues[name]]


@pytest.mark.seed(189)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.lists(st.integers(1, 4), min_size=6, max_size=6),
    st.lists(st.integers(1, 5), min_size=1, max_size=10),
)
def test_no_scope_waits_for_more_than_one_round(sizes: list[int], shares: list[int], free: list[int]) -> None:
    """Between two runs of a scope that waits, each other scope starts at most its weight and a rest of one more turn."""
    names = [("account", chr(ord("a") + number)) for number in range(len(sizes))]
    weights = dict(zip(names, shares, strict=False))
    queues = {name: deque(range(size)) for name, size in zip(names, sizes, strict=True)}
    turns, started = RoundRobin(), []
    while any(queues.values()):
        for most in free:
            picked = turns.order(reads(turns, queues), weights)[:most]
            for scope, _ in picked:
                queues[scope].popleft()
                started.append((scope, {name for name, items in queues.items() if items}))
            turns.started([scope for scope, _ in picked], weights)
    since: dict[tuple[str, str], Counter[tuple[str, str]]] = {name: Counter() for name in names}
    for scope, waiting in started:
        since[scope] = Counter()
        for other in waiting - {scope}:
            since[other][scope] += 1
            assert since[other][scope] <= 2 * weights[scope], (other, scope)
    assert Counter(scope for scope, _ in started) == dict(zip(names, sizes, strict=True))


@given(
    st.integers(1, 30),
    st.dictionaries(st.sampled_from([("account", c) for c in "abcdef"]), st.integers(0, 30), min_size=2),
    st.lists(st.sampled_from("abcdef"), max_size=80),
)
def test_while_scopes_wait_none_takes_more_than_its_share_and_no_room_is_left_over(
    limit: int, held: dict[Scope, int], wants: list[str]
) -> None:
    shares = Shares(limit, list(held), {}, held)
    most = -(-limit // len(held))
    taken = dict(held)
    for scope in (("account", c) for c in wants):
        if scope in held and shares.take(scope, 1):
            taken[scope] += 1
            assert taken[scope] <= most
    for scope in held:
        while shares.take(scope, 1):
            taken[scope] += 1
    assert sum(taken.values()) >= limit


def test_a_share_grows_with_the_weight_of_its_scope() -> None:
    a, b = ("account", "a"), ("account", "b")
    shares = Shares(8, [a, b], {a: 3}, {})
    assert [shares.take(a, 1) for _ in range(7)] == [True] * 6 + [False]
    assert [shares.take(b, 1) for _ in range(3)] == [True, True, False]
