"""Who is avoided, and for how long; how batches cut themselves."""

from typing import Any

import pytest

from toban_coordinator.app.adaptive_batch import ALONE_STRIKES, AdaptiveBatch, split_on_refusal
from toban_coordinator.app.placement.reachability import Reachability
from toban_domain.errors import ErrorCode
from toban_store.errors import Refused, TooLong


async def test_an_unreached_executor_is_avoided_for_longer_each_time(fake_clock: Any) -> None:
    reach = Reachability(clock=fake_clock)
    reach.failed("a")
    assert reach.avoided() == {"a"} and reach.lost("a")
    await fake_clock.advance(4.9)
    reach.failed("a")
    await fake_clock.advance(5.1)
    assert reach.avoided() == frozenset() and reach.lost("a")
    reach.failed("a")
    await fake_clock.advance(9.9)
    assert reach.avoided() == {"a"}
    reach.answered("a")
    assert reach.avoided() == frozenset() and not reach.lost("a")


async def test_parts_halve_what_takes_too_long_and_grow_again() -> None:
    parts, written, fits = AdaptiveBatch(8), [], 3

    async def write(part: Any) -> None:
        if len(part) > fits:
            raise TooLong(ErrorCode.DEADLINE_EXCEEDED, "slow")
        written.append(list(part))

    await parts.each(list(range(7)), write)
    assert [item for part in written for item in part] == list(range(7))
    assert max(map(len, written)) <= 3
    fits = 8
    for _ in range(4):
        await parts.each(list(range(8)), write)
    assert parts.size == 8
    fits = 0
    with pytest.raises(TooLong):
        await parts.each([1], write)


async def test_parts_grow_so_slowly_that_few_do_not_fit() -> None:
    """Of a machine that has room for 20 at a time; before, every other write was in vain."""
    parts, written, in_vain = AdaptiveBatch(500), 0, 0

    async def write(part: Any) -> None:
        nonlocal written, in_vain
        if len(part) > 20:
            in_vain += 1
            raise TooLong(ErrorCode.DEADLINE_EXCEEDED, "slow")
        written += 1

    await parts.each(list(range(500)), write)
    assert in_vain <= written / 3
    await parts.each(list(range(500)), write)
    assert in_vain <= written / 4, "what has fitted is known"


async def test_parts_go_on_without_what_cannot_be_written_alone() -> None:
    good: list[int] = []
    bad: dict[int, type[Exception]] = {}

    async def write(part: Any) -> None:
        if 5 in part:
            raise Refused("no", sqlstate="22003")
        if 2 in part:
            raise TooLong(ErrorCode.DEADLINE_EXCEEDED, "slow", sqlstate="57014")
        good.extend(part)

    async def alone(item: int, error: Refused | TooLong) -> None:
        bad[item] = type(error)

    await AdaptiveBatch(8).each(list(range(9)), write, alone)
    assert set(good) == {0, 1, 3, 4, 6, 7, 8}
    assert bad == {2: TooLong, 5: Refused}


@pytest.mark.parametrize("failures", [1, 2, 5])
async def test_one_item_is_written_when_only_this_process_was_slow(failures: int) -> None:
    """On a starved machine a transaction waits for the process: that is no fault of what it writes."""
    left, good, bad = failures + 1, [], []

    async def write(part: Any) -> None:
        nonlocal left
        left -= 1
        if left > 0:
            raise TooLong(ErrorCode.DEADLINE_EXCEEDED, "idle in transaction", sqlstate="25P03")
        good.extend(part)

    async def alone(item: int, _error: Refused | TooLong) -> None:
        bad.append(item)

    await AdaptiveBatch(8).each([1], write, alone)
    assert (good, bad) == ([1], [])


async def test_a_process_that_stays_too_slow_fails_the_turn_and_blames_no_item() -> None:
    bad: list[int] = []

    async def write(_part: Any) -> None:
        raise TooLong(ErrorCode.DEADLINE_EXCEEDED, "idle in transaction", sqlstate="25P03")

    async def alone(item: int, _error: Refused | TooLong) -> None:
        bad.append(item)

    with pytest.raises(TooLong):
        await AdaptiveBatch(8).each([1], write, alone)
    assert bad == []


async def test_an_item_that_is_slow_once_is_not_set_aside() -> None:
    tries, bad = [], []

    async def write(part: Any) -> None:
        tries.append(list(part))
        if len(tries) <= ALONE_STRIKES:
            raise TooLong(ErrorCode.DEADLINE_EXCEEDED, "slow", sqlstate="57014")

    async def alone(item: int, _error: Refused | TooLong) -> None:
        bad.append(item)

    await AdaptiveBatch(8).each([1], write, alone)
    assert bad == [] and len(tries) == ALONE_STRIKES + 1


async def test_halves_find_the_bad_item() -> None:
    good, bad = [], []

    async def write(part: Any) -> None:
        if 5 in part:
            raise Refused("no", sqlstate="22003")
        good.extend(part)

    async def alone(item: int, error: Refused) -> None:
        bad.append(item)

    await split_on_refusal(list(range(9)), write, alone, refusals=(Refused,))
    assert (good, bad) == ([0, 1, 2, 3, 4, 6, 7, 8], [5])
