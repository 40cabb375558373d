"""The replicas of one service from asyncio code: the order of trial, what moves on to the next one, and streams."""

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_testing.clock import FakeClock
from toban_transport.replicas import Replicas


class Channels:
    """Instead of a ChannelPool: the stub of an address is the address."""

    def stub(self, _make: object, address: str, _service: str) -> str:
        return address


def replicas(
    *addresses: str, clock: FakeClock | None = None, try_another: frozenset[ErrorCode] | None = None
) -> Replicas[str]:
    return Replicas(
        channels=Channels(),  # type: ignore[arg-type]
        stub=str,
        service="coordinator",
        addresses=addresses,
        clock=clock or FakeClock(),
        unknown="no coordinator is known",
        try_another=try_another,
        avoid_seconds=10.0,
    )


async def answered(known: Replicas[str], failing: dict[str, ErrorCode] | None = None) -> list[str]:
    """The addresses that one call tries, in order."""
    tried: list[str] = []

    async def attempt(address: str) -> str:
        tried.append(address)
        if failing and address in failing:
            raise TobanError(failing[address], f"{address} fails")
        return address

    assert await known.call(attempt) == tried[-1]
    return tried


async def test_the_next_one_is_tried_and_the_one_that_answered_comes_first_afterwards() -> None:
    known = replicas("a", "b", "c")
    assert await answered(known, {"a": ErrorCode.UNAVAILABLE}) == ["a", "b"]
    assert await answered(known) == ["b"]
    known.learn(leader="c", addresses=["d"])
    assert known.addresses() == ["c", "b", "d", "a"]
    known.learn(leader="", addresses=[])
    assert known.addresses() == ["c", "b", "d", "a"], "empty answers change nothing"


async def test_one_that_missed_a_deadline_comes_last_for_a_while() -> None:
    clock = FakeClock()
    known = replicas("a", "b", clock=clock)
    assert await answered(known, {"a": ErrorCode.DEADLINE_EXCEEDED}) == ["a", "b"]
    known.learn(leader="a", addresses=[])
    assert known.addresses() == ["b", "a"]
    await clock.advance(10.0)
    assert known.addresses() == ["a", "b"]


async def test_only_the_given_codes_move_on() -> None:
    known = replicas("a", "b", try_another=frozenset({ErrorCode.UNAVAILABLE}))
    assert await answered(known, {"a": ErrorCode.UNAVAILABLE}) == ["a", "b"]
    with pytest.raises(TobanError, match="b fails"):
        await answered(known, {"b": ErrorCode.INTERNAL})


async def test_the_last_error_is_raised_when_none_answers_and_a_hint_when_none_is_known() -> None:
    with pytest.raises(TobanError, match="b fails"):
        await answered(replicas("a", "b"), {"a": ErrorCode.UNAVAILABLE, "b": ErrorCode.UNAVAILABLE})
    with pytest.raises(TobanError, match="no coordinator is known") as caught:
        await answered(replicas())
    assert caught.value.code is ErrorCode.UNAVAILABLE
    with pytest.raises(TobanError, match="no coordinator is known"):
        replicas().next_for_stream()


def test_streams_take_each_address_in_turn() -> None:
    known = replicas("a", "b", "c")
    assert [known.next_for_stream() for _ in range(7)] == ["a", "b", "c", "a", "b", "c", "a"]


async def test_a_stream_is_never_reopened_at_the_same_address_when_the_order_changes() -> None:
    known = replicas("a", "b", "c")
    assert known.next_for_stream() == "a"
    await answered(known, {"a": ErrorCode.UNAVAILABLE})
    assert known.addresses() == ["b", "a", "c"]
    assert known.next_for_stream() == "b", "second in the new order is `a` again"
    known.learn(leader="c", addresses=["d"])
    assert [known.next_for_stream() for _ in range(4)] == ["c", "d", "a", "b"]
