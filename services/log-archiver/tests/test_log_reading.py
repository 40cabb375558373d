"""Read and Describe: order, positions, tails, following, and flat memory."""

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import logs_pb2


async def collect(answers: Any, into: asyncio.Queue[Any]) -> None:
    async for answer in answers:
        into.put_nowait(answer)
    into.put_nowait(None)


@pytest.fixture
async def followed(archiver: Any) -> Any:
    """Starts followers whose answers come over a queue; None is the end of the stream."""
    tasks: list[asyncio.Task[None]] = []

    def follow(run_id: int, **given: Any) -> asyncio.Queue[Any]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        tasks.append(asyncio.create_task(collect(archiver.read(run_id, follow=True, **given), queue)))
        return queue

    yield follow
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def take(queue: asyncio.Queue[Any]) -> Any:
    async with asyncio.timeout(60):
        return await queue.get()


async def take_lines(queue: asyncio.Queue[Any], count: int) -> list[int]:
    got: list[int] = []
    while len(got) < count:
        got += [line.seq for line in (await take(queue)).lines]
    return got


async def interleaved(archiver: Any, run_id: int, token: int) -> None:
    """Twenty chunks over three streams whose ranges overlap: seq n is on stream n % 3 + 1."""
    chunks = []
    for stream in (1, 2, 3):
        seqs = [seq for seq in range(1, 301) if seq % 3 + 1 == stream]
        step = 7 * stream
        chunks += [
            archiver.chunk(run_id, token, seqs[at : at + step], stream=stream) for at in range(0, len(seqs), step)
        ]
    await archiver.store(run_id, token, *chunks, seal=300)


async def test_streams_merge_in_order(archiver: Any) -> None:
    await interleaved(archiver, 1, 10)
    assert await archiver.lines(1) == [(10, seq) for seq in range(1, 301)]
    assert await archiver.lines(1, from_seq=150) == [(10, seq) for seq in range(150, 301)]
    assert await archiver.lines(1, streams=[2]) == [(10, seq) for seq in range(1, 301) if seq % 3 == 1]
    assert await archiver.lines(1, streams=[1, 3], from_seq=290) == [
        (10, seq) for seq in range(290, 301) if seq % 3 != 1
    ]


async def test_a_part_of_an_attempt(archiver: Any) -> None:
    await interleaved(archiver, 1, 10)
    assert await archiver.lines(1, from_seq=150, to_seq=160) == [(10, seq) for seq in range(150, 161)]
    assert await archiver.lines(1, from_seq=150, to_seq=160, tail=3) == [(10, 158), (10, 159), (10, 160)]
    assert await archiver.lines(1, from_seq=150, to_seq=160, tail=99, streams=[2]) == [
        (10, seq) for seq in range(150, 161) if seq % 3 == 1
    ]
    assert await archiver.lines(1, to_seq=2) == [(10, 1), (10, 2)]
    assert await archiver.lines(1, from_seq=9, to_seq=8) == []


async def test_attempts_come_in_order(archiver: Any) -> None:
    await archiver.store(1, 20, archiver.chunk(1, 20, [1, 2]), seal=2)
    await archiver.store(1, 10, archiver.chunk(1, 10, [1, 2, 3]), seal=3)
    assert await archiver.lines(1) == [(10, 1), (10, 2), (10, 3), (20, 1), (20, 2)]
    assert await archiver.lines(1, token=20) == [(20, 1), (20, 2)]
    assert await archiver.lines(1, token=99) == []
    assert [attempt.token for attempt in await archiver.describe(1)] == [10, 20]


@pytest.mark.parametrize("count", [1, 5, 50, 299, 300, 400])
async def test_a_tail_is_exactly_the_last_lines(archiver: Any, count: int) -> None:
    await interleaved(archiver, 1, 10)
    assert await archiver.lines(1, tail=count) == [(10, seq) for seq in range(1, 301)][-count:]


async def test_a_tail_of_some_streams_and_over_attempts(archiver: Any) -> None:
    await interleaved(archiver, 1, 10)
    await archiver.store(1, 20, archiver.chunk(1, 20, [1, 2]), seal=2)
    assert await archiver.lines(1, tail=4) == [(10, 299), (10, 300), (20, 1), (20, 2)]
    assert await archiver.lines(1, token=10, tail=3, streams=[2]) == [(10, 292), (10, 295), (10, 298)]


async def test_a_run_without_lines(archiver: Any) -> None:
    assert await archiver.lines(1) == []
    assert await archiver.lines(1, tail=5) == []
    assert await archiver.describe(1) == []
    await archiver.store(2, 10, seal=0)
    (found,) = await archiver.describe(2)
    assert (found.lines, found.sealed) == (0, True)


async def test_a_follower_sees_lines_live_and_ends_at_the_seal(archiver: Any, followed: Any) -> None:
    queue = followed(1)
    for seq in (1, 2, 3):
        await archiver.store(1, 10, archiver.chunk(1, 10, [seq]))
        assert await take_lines(queue, 1) == [seq]
    await archiver.store(1, 10, archiver.chunk(1, 10, [4], stream=2), seal=4)
    assert await take_lines(queue, 1) == [4]
    assert (await take(queue)).at_end
    assert await take(queue) is None


async def test_a_follower_of_another_archiver_is_woken_too(archiver: Any, second_archiver: Any, followed: Any) -> None:
    queue = followed(1)
    await second_archiver.store(1, 10, second_archiver.chunk(1, 10, [1]), seal=1)
    assert await take_lines(queue, 1) == [1]
    assert (await take(queue)).at_end


async def test_following_begins_with_a_tail_or_a_position(archiver: Any, followed: Any) -> None:
    await archiver.store(1, 10, archiver.chunk(1, 10, list(range(1, 101))))
    by_tail, by_position = followed(1, tail=3), followed(1, from_seq=100)
    assert await take_lines(by_tail, 3) == [98, 99, 100]
    assert await take_lines(by_position, 1) == [100]
    await archiver.store(1, 10, archiver.chunk(1, 10, [101]), seal=101)
    assert await take_lines(by_tail, 1) == [101]
    assert await take_lines(by_position, 1) == [101]


async def test_an_attempt_that_was_never_sealed_does_not_hold_the_end_up(archiver: Any, followed: Any) -> None:
    await archiver.store(1, 10, archiver.chunk(1, 10, [1]))
    queue = followed(1)
    assert await take_lines(queue, 1) == [1]
    await archiver.store(1, 20, archiver.chunk(1, 20, [1]), seal=1)
    assert await take_lines(queue, 1) == [1]
    assert (await take(queue)).at_end


async def test_lines_that_come_after_their_seal_are_waited_for(archiver: Any, followed: Any) -> None:
    await archiver.store(1, 10, archiver.chunk(1, 10, [1]), seal=2)
    queue = followed(1)
    assert await take_lines(queue, 1) == [1]
    await archiver.store(1, 10, archiver.chunk(1, 10, [2]))
    assert await take_lines(queue, 1) == [2]
    assert (await take(queue)).at_end


@pytest.mark.parametrize("wrong", [{"run_id": 0}, {"run_id": 1, "tail": -1}, {"run_id": 1, "tail": 10_001}])
async def test_wrong_questions(archiver: Any, wrong: dict[str, int]) -> None:
    with pytest.raises(TobanError) as caught:
        await archiver.lines(**wrong)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


async def test_fifty_thousand_lines_in_flat_memory(archiver: Any) -> None:
    step, total = 500, 50_000
    ticket = archiver.ticket(1, 10)
    requests = [
        logs_pb2.AppendRequest(
            tickets=[ticket],
            chunks=[archiver.chunk(1, 10, seqs, data=archiver.frame(seqs, text=lambda seq: b"%d " % seq + b"x" * 200))],
        )
        for seqs in (list(range(at, at + step)) for at in range(1, total, step))
    ]
    await archiver.append(*requests)
    del requests
    gc.collect()
    tracemalloc.start()
    expected = 1
    async for answer in archiver.read(1):
        for line in answer.lines:
            assert line.seq == expected
            expected += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert expected == total + 1
    # The log has 10 MB of text; the reader and this client together hold pages of it.
    assert peak < 6_000_000
