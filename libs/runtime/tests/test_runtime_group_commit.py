"""What is submitted during a commit goes into the next one; errors reach every submitter; memory is bounded."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest

from toban_runtime.group_commit import GroupCommit, GroupLimits


class Commits:
    """Records groups; each commit waits for `go`."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.go = asyncio.Event()
        self.begun = asyncio.Event()

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.groups.append(list(items))
        self.begun.set()
        await self.go.wait()
        if 13 in items:
            raise ValueError("thirteen")
        return [item * 10 for item in items]


async def submit_all(
    group: GroupCommit[int, int], commits: Commits, first: int, *rest: int
) -> list[int | BaseException]:
    """Submits `first`, and the others while its commit is under way."""
    tasks = [asyncio.create_task(group.submit(first))]
    await commits.begun.wait()
    tasks += [asyncio.create_task(group.submit(item)) for item in rest]
    await asyncio.sleep(0)
    commits.go.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_comes_during_a_commit_shares_the_next() -> None:
    commits = Commits()
    group = GroupCommit(commits, limits=GroupLimits(max_items=3))
    assert await submit_all(group, commits, 1, 2, 3, 4, 5) == [10, 20, 30, 40, 50]
    assert commits.groups == [[1], [2, 3, 4], [5]]


async def test_a_group_is_bounded_by_size_and_one_item_may_be_larger() -> None:
    commits = Commits()
    group = GroupCommit(commits, limits=GroupLimits(max_items=9, max_size=10), size_of=float)
    assert await submit_all(group, commits, 1, 12, 4, 6, 1) == [10, 120, 40, 60, 10]
    assert commits.groups == [[1], [12], [4, 6], [1]]


async def test_an_error_reaches_every_submitter_of_its_group_alone() -> None:
    commits = Commits()
    group = GroupCommit(commits, limits=GroupLimits(max_items=2))
    first, *failed, last = await submit_all(group, commits, 1, 2, 13, 4)
    assert (first, last) == (10, 40)
    assert [str(error) for error in failed] == ["thirteen", "thirteen"]


async def test_a_submitter_that_gives_up_withdraws_nothing() -> None:
    commits = Commits()
    idle = asyncio.Event()
    group = GroupCommit(commits, limits=GroupLimits(max_items=2), on_idle=idle.set)
    task = asyncio.create_task(group.submit(1))
    await commits.begun.wait()
    late = asyncio.create_task(group.submit(2))
    await asyncio.sleep(0)
    for one in (task, late):
        one.cancel()
    await asyncio.gather(task, late, return_exceptions=True)
    commits.go.set()
    async with asyncio.timeout(60):
        await idle.wait()
    assert commits.groups == [[1], [2]]
    commits.go.set()
    assert await group.submit(3) == 30, "it works on after it was idle"


async def test_a_cancelled_worker_cancels_its_submitters() -> None:
    commits, idle = Commits(), asyncio.Event()
    group = GroupCommit(commits, limits=GroupLimits(max_items=1), on_idle=idle.set, name="the worker")
    submitters = [asyncio.create_task(group.submit(item)) for item in (1, 2)]
    await commits.begun.wait()
    [worker] = [task for task in asyncio.all_tasks() if task.get_name() == "the worker"]
    worker.cancel()
    async with asyncio.timeout(60):
        results = await asyncio.gather(*submitters, return_exceptions=True)
        await idle.wait()
    assert [type(result) for result in results] == [asyncio.CancelledError, asyncio.CancelledError]
    commits.go.set()
    assert await group.submit(3) == 30, "it works on afterwards"


async def test_the_error_of_an_abandoned_future_is_not_reported_as_lost() -> None:
    lost: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: lost.append(context))
    commits, idle = Commits(), asyncio.Event()
    commits.go.set()
    group = GroupCommit(commits, limits=GroupLimits(max_items=1), on_idle=idle.set)
    abandoned = asyncio.create_task(group.submit(13))
    await asyncio.sleep(0)
    abandoned.cancel()
    async with asyncio.timeout(60):
        await idle.wait()
    gc.collect()
    assert lost == []


async def test_a_commit_that_answers_too_few_fails_its_group() -> None:
    async def too_few(_items: Sequence[int]) -> list[int]:
        return []

    group = GroupCommit(too_few, limits=GroupLimits(max_items=1))
    with pytest.raises(ValueError, match="zip"):
        await group.submit(1)


async def test_an_exception_in_place_of_a_result_is_for_that_item_alone() -> None:
    async def commit(items: Sequence[int]) -> list[int | Exception]:
        return [KeyError("two") if item == 2 else item for item in items]

    group = GroupCommit(commit, limits=GroupLimits(max_items=9))
    results = await asyncio.gather(*(group.submit(item) for item in (1, 2, 3)), return_exceptions=True)
    assert (results[0], type(results[1]), results[2]) == (1, KeyError, 3)


async def test_enqueued_items_keep_their_order_and_are_awaited_later() -> None:
    commits = Commits()
    commits.go.set()
    group = GroupCommit(commits, limits=GroupLimits(max_items=9))
    futures = [group.enqueue(item) for item in (3, 1, 2)]
    assert await asyncio.gather(*futures) == [30, 10, 20]
    assert commits.groups == [[3, 1, 2]]


@pytest.mark.parametrize("begun", [False, True])
async def test_closing_cancels_every_submitter_even_of_a_worker_that_has_not_begun(begun: bool) -> None:
    commits = Commits()
    group = GroupCommit(commits, limits=GroupLimits(max_items=1))
    futures = [group.enqueue(1), group.enqueue(2)]
    if begun:
        await commits.begun.wait()
    await group.close()
    assert [future.cancelled() for future in futures] == [True, True]
    await group.close()


async def test_after_a_large_commit_the_next_waits_for_more() -> None:
    commits = Commits()
    commits.go.set()
    group = GroupCommit(commits, limits=GroupLimits(max_items=9, linger_seconds=0.2), size_of=float)
    assert await group.submit(2) == 20
    early = asyncio.create_task(group.submit(1))
    # Long enough for a commit that does not wait.
    for _ in range(10):
        await asyncio.sleep(0)
    assert await asyncio.gather(early, group.submit(3)) == [10, 30]
    assert commits.groups == [[2], [1, 3]]


async def test_after_a_small_commit_the_next_does_not_wait() -> None:
    commits = Commits()
    commits.go.set()
    group = GroupCommit(commits, limits=GroupLimits(max_items=9, linger_seconds=3600), size_of=float)
    assert [await group.submit(1), await group.submit(4)] == [10, 40]
