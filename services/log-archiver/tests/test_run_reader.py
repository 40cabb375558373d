"""Following an attempt with holes, and across its sealed end."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from toban_domain.dropped_lines import DATABASE_LIMIT, dropped_lines_text
from toban_log_archiver.adapters.chunk_codec import LogLinesCodec
from toban_log_archiver.app.combined_source import CombinedSource
from toban_log_archiver.app.followers import Followers
from toban_log_archiver.app.line_reader import ReaderDeps
from toban_log_archiver.app.log_reading import LogReading
from toban_log_archiver.app.run_reader import RunReader
from toban_log_archiver.decide.gap_tracker import GAP_SECONDS, Prefix
from toban_log_archiver.server.request_validation import read_request
from toban_proto.v1.logs_pb2 import LogLine, ReadLogRequest
from toban_testing.clock import FakeClock
from toban_testing.memory_chunk_source import MemoryChunks, head, new_chunk

NANOS = 1_800_000_000_000_000_000


def chunk(token: int, *seqs: int, stream: int = 1) -> Any:
    lines = [LogLine(seq=seq, at_unix_nanos=NANOS, stream=stream, text=b"%d" % seq) for seq in seqs]  # type: ignore[arg-type]
    return new_chunk(1, token, lines)


class Follower:
    """A follower that looks when it is told to."""

    def __init__(self, source: Any, **given: Any) -> None:
        self.clock = FakeClock()
        request = ReadLogRequest(run_id=1, follow=True, **given)
        self.reading = RunReader(
            deps=ReaderDeps(source=source, codec=LogLinesCodec(), clock=self.clock), request=read_request(request)
        )

    async def look(self) -> list[int]:
        return [line.seq async for answer in self.reading.available() for line in answer.lines]


async def test_what_comes_after_a_hole_waits_for_it() -> None:
    source = MemoryChunks()
    follower = Follower(source)
    source.put(chunk(10, 1, 2))
    source.put(chunk(10, 5, 6))
    assert await follower.look() == [1, 2]
    source.put(chunk(10, 4, stream=2))
    assert await follower.look() == []
    source.put(chunk(10, 3, stream=2))
    assert await follower.look() == [3, 4, 5, 6]


async def test_a_follower_that_finds_nothing_learns_how_far_it_is() -> None:
    """So that a stream that is opened again does not read it all again."""
    source, clock = MemoryChunks(), FakeClock()
    deps = ReaderDeps(source=source, codec=LogLinesCodec(), clock=clock)
    reading = LogReading(deps=deps, followers=Followers())
    source.put(chunk(10, 1, 2, 3))
    request = ReadLogRequest(run_id=1, follow=True, grep="nothing")
    async with aclosing(reading.read(read_request(request))) as parts:
        first = asyncio.ensure_future(anext(parts))
        while not first.done():
            await asyncio.sleep(0.01)
            await clock.advance(0.1)
    part = first.result()
    assert (part.token, part.lines, part.read_to) == (10, (), 3)


async def test_each_part_says_how_far_a_follower_is() -> None:
    source = MemoryChunks()
    follower = Follower(source, grep="2")
    source.put(chunk(10, 1, 2, 3))
    parts = [part async for part in follower.reading.available()]
    assert [([line.seq for line in part.lines], part.read_to) for part in parts] == [([2], 3)]
    assert (follower.reading.token, follower.reading.read_to) == (10, 3)


async def test_a_hole_that_stays_is_passed_over_in_the_end() -> None:
    source = MemoryChunks()
    follower = Follower(source)
    source.put(chunk(10, 3, 4))
    assert await follower.look() == []
    await follower.clock.advance(GAP_SECONDS - 1)
    assert await follower.look() == []
    await follower.clock.advance(1)
    assert await follower.look() == [3, 4]
    source.put(chunk(10, 7))
    assert await follower.look() == []
    source.put(chunk(10, 5, 6))
    assert await follower.look() == [5, 6, 7]


@pytest.mark.parametrize(
    "given", [{}, {"streams": [2]}, {"grep": "nothing"}, {"tail": 2}, {"after": {"token": 10, "seq": 4}}]
)
async def test_a_follower_ends_at_the_sealed_end_whatever_it_asks_for(given: dict[str, Any]) -> None:
    source = MemoryChunks()
    follower = Follower(source, **given)
    source.put(chunk(10, 1, 2, 3, 4))
    await follower.look()
    source.seal(1, 10, 5)
    await follower.look()
    assert not follower.reading.at_end
    source.put(chunk(10, 5))
    await follower.look()
    assert follower.reading.at_end


async def test_what_a_limit_left_out_is_no_hole() -> None:
    """The line that counts it has the number of the last one that was left out."""
    source = MemoryChunks()
    follower = Follower(source)
    source.put(chunk(10, 1, 2))
    source.put(chunk(10, 1_003))
    assert await follower.look() == [1, 2]
    words = dropped_lines_text(1000, size="5 KiB", limit="10 lines a second")
    mark = LogLine(seq=1_002, at_unix_nanos=NANOS, stream=3, text=words.encode())
    source.put(new_chunk(1, 10, [mark]))
    assert await follower.look() == [1_002, 1_003]
    words = dropped_lines_text(5, size="5 KiB", limit="10 lines a second")
    source.put(new_chunk(1, 10, [LogLine(seq=1_010, at_unix_nanos=NANOS, stream=3, text=words.encode())]))
    assert await follower.look() == []
    source.put(chunk(10, 1_004, 1_005))
    assert await follower.look() == [1_004, 1_005, 1_010]


def no_room(seq: int, lines: int) -> Any:
    """What stands for a chunk of one stream that the database had no room for."""
    words = dropped_lines_text(lines, size="5 KiB", limit=f"{DATABASE_LIMIT}, 50 GB")
    return new_chunk(1, 10, [LogLine(seq=seq, at_unix_nanos=NANOS, stream=3, text=words.encode())])


async def test_chunks_that_were_left_out_and_whose_lines_took_turns_are_no_holes() -> None:
    source = MemoryChunks()
    follower = Follower(source)
    source.put(no_room(999, 500))
    source.put(no_room(1_000, 500))
    assert await follower.look() == [999, 1_000]
    # Lines of a small chunk between those of one that was left out.
    source.put(chunk(10, 1_100, 1_200, 1_300, stream=2))
    assert await follower.look() == []
    source.put(no_room(1_400, 397))
    assert await follower.look() == [1_100, 1_200, 1_300, 1_400]
    # What is missing besides is waited for.
    source.put(no_room(1_500, 99))
    assert await follower.look() == []
    source.put(chunk(10, 1_450, stream=2))
    assert await follower.look() == [1_450, 1_500]


async def test_a_seal_with_lines_missing_ends_after_its_grace() -> None:
    source = MemoryChunks()
    follower = Follower(source)
    source.put(chunk(10, 2, 3))
    source.seal(1, 10, 4, seconds=1.0)
    assert await follower.look() == []
    assert not follower.reading.at_end
    source.seal(1, 10, 4, seconds=6.0)
    assert await follower.look() == [2, 3]
    assert follower.reading.at_end


async def test_the_next_attempt_follows_and_nothing_of_the_first_is_waited_for() -> None:
    source = MemoryChunks()
    follower = Follower(source)
    source.put(chunk(10, 2))
    assert await follower.look() == []
    source.put(chunk(20, 1))
    source.seal(1, 20, 1)
    assert await follower.look() == [2, 1]
    assert follower.reading.at_end


async def test_following_across_the_move_into_the_archive() -> None:
    """A chunk moves between two looks, and is on both sides for a while."""
    database, archive = MemoryChunks(), MemoryChunks("s3://b/k")
    follower = Follower(CombinedSource(database, archive))
    first, second = chunk(10, 1, 2), chunk(10, 3)
    database.put(first)
    assert await follower.look() == [1, 2]
    archive.put(first)
    database.put(second)
    assert await follower.look() == [3]
    database.chunks.remove(first)
    archive.put(second)
    database.chunks.remove(second)
    database.rows.clear()
    archive.put(chunk(10, 4))
    archive.seal(1, 10, 4)
    assert await follower.look() == [4]
    assert follower.reading.at_end


async def test_a_long_search_is_quiet_only_for_a_while() -> None:
    """Pages without a wanted line come as empty answers, for the caller to see that it goes on."""
    source = MemoryChunks()
    for seq in range(1, 41):
        source.put(chunk(10, seq))
    request = ReadLogRequest(run_id=1, grep="nothing")
    reading = RunReader(
        deps=ReaderDeps(source=source, codec=LogLinesCodec(), clock=FakeClock()), request=read_request(request)
    )
    assert [len(answer.lines) async for answer in reading.available()] == [0] * 6
    assert source.pages == [8, 8, 8, 8, 8, 0]


@pytest.mark.parametrize(
    ("chunks", "before", "next_seq"),
    [
        ([chunk(1, 1, 2), chunk(1, 3)], 99, 4),
        ([chunk(1, 1, 2), chunk(1, 3)], 3, 3),
        ([chunk(1, 1, 2), chunk(1, 4)], 99, 3),
        ([chunk(1, 2)], 99, 1),
        ([chunk(1, 1, 3), chunk(1, 2, 4, stream=2)], 99, 5),
        ([chunk(1, 1, 4), chunk(1, 2, stream=2)], 99, 1),
        ([chunk(1, 1), chunk(1, 2, 5), chunk(1, 3, 4, stream=2), chunk(1, 6)], 6, 6),
        ([chunk(1, 1), chunk(1, 2, 5), chunk(1, 3, 4, stream=2), chunk(1, 6)], 4, 2),
        ([], 99, 1),
    ],
)
def test_how_far_an_attempt_is_whole(chunks: list[Any], before: int, next_seq: int) -> None:
    prefix = Prefix(before=before)
    prefix.add(map(head, chunks))
    assert prefix.close() == next_seq
