"""Read with filters over a real database: which lines come, and which chunks are not even opened."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_log_archiver.app.database_source import DatabaseSource
from toban_log_archiver.decide.stored_chunks import ALWAYS, NewChunk, TimeSpan, TokenPlace
from toban_log_archiver.store import chunks, log_attempts
from toban_log_archiver.store.log_attempts import TokenNote
from toban_proto.v1.logs_pb2 import LogLine
from toban_store.pool import Pool
from toban_store.tx import tx
from toban_testing.kept_sessions import kept_pool
from toban_testing.memory_chunk_source import MemoryChunks, at, new_chunk

NANOS = 1_800_000_000_000_000_000
MINUTE = 60 * 10**9
INCARNATION = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
async def pool(pg_url: str) -> AsyncIterator[Pool]:
    one = await kept_pool(pg_url, max_size=2)
    yield one
    await one.close()


async def insert(pool: Pool, *new: NewChunk, seal: int | None = None) -> None:
    """As the writer does, without its checks."""
    key = {"log_day": new[0].log_day, "run_id": new[0].run_id, "token": new[0].token}
    async with tx(pool) as t:
        await log_attempts.note(t, [TokenNote(**key, incarnation=INCARNATION, last_seq=seal)])
        await chunks.append(t, new)


def line(seq: int, text: str, *, minute: int = 0, stream: int = 1, level: str = "") -> LogLine:
    at_nanos = NANOS + minute * MINUTE + seq
    return LogLine(seq=seq, at_unix_nanos=at_nanos, stream=stream, text=text.encode(), level=level)  # type: ignore[arg-type]


def broken(chunk: NewChunk) -> NewChunk:
    """The same chunk with data that cannot be decoded."""
    return NewChunk(**{name: getattr(chunk, name) for name in NewChunk.__dataclass_fields__} | {"data": b"no frame"})


async def test_lines_by_text_level_stream_and_time(archiver: Any, pool: Pool) -> None:
    out = [
        line(1, "starts", minute=0),
        line(2, "disk error 17", minute=1, level="error"),
        line(4, "disk warning", minute=3, level="warning"),
    ]
    err = [line(3, "Disk full", minute=2, stream=2, level="fatal"), line(5, "disk ok", minute=4, stream=2)]
    await insert(pool, *(new_chunk(1, 10, part, log_day=archiver.today) for part in (out, err)), seal=5)

    async def seqs(**given: Any) -> list[int]:
        return [seq for _, seq in await archiver.lines(1, **given)]

    assert await seqs(grep="disk") == [2, 4, 5]
    assert await seqs(grep="(?i)disk (full|error) *[0-9]*$", regex=True) == [2, 3]
    assert await seqs(grep="disk (") == []
    assert await seqs(level="warning") == [2, 3, 4]
    assert await seqs(level="critical") == [3]
    assert await seqs(level="error", streams=[1]) == [2]
    assert await seqs(since=at(NANOS + MINUTE), until=at(NANOS + 3 * MINUTE)) == [2, 3]
    assert await seqs(grep="disk", tail=2) == [4, 5]
    assert await seqs(grep="disk", head=2) == [2, 4]
    assert await seqs(head=2) == [1, 2]
    assert await seqs(after={"token": 10, "seq": 3}) == [4, 5]
    assert await seqs(after={"token": 11, "seq": 0}) == []
    assert await seqs(tokens=[9, 10], tail=1) == [5]


async def test_text_and_bytes_as_the_job_wrote_them(archiver: Any, pool: Pool) -> None:
    cut = LogLine(seq=2, at_unix_nanos=NANOS, stream=1, text=b"\xff\r", partial=True)
    parts = [[line(1, "one"), cut], [line(3, "no", stream=2)], [line(4, "marker", stream=3)], [line(5, "two")]]
    await insert(pool, *(new_chunk(1, 10, part, log_day=archiver.today) for part in parts), seal=5)

    async def data(**given: Any) -> bytes:
        return b"".join([answer.data async for answer in archiver.read(1, raw=True, **given)])

    assert await data() == b"one\n\xff\rno\ntwo\n"
    assert await data(streams=[1]) == b"one\n\xff\rtwo\n"
    assert await data(token=10, byte_from=2, byte_to=8) == b"e\n\xff\rno"
    assert await data(token=10, byte_from=9) == b"two\n"
    assert await data(token=10, byte_from=99) == b""
    assert await data(token=10, byte_from=9, follow=True) == b"two\n"
    assert (await archiver.describe(1))[0].raw_bytes == 13 + len("marker\n")


async def test_a_tail_and_a_time_open_only_the_chunks_they_need(archiver: Any, pool: Pool) -> None:
    """Every chunk but the last few is broken: decoding one would fail."""
    parts = [[line(seq, f"line {seq}", minute=seq) for seq in range(at_, at_ + 10)] for at_ in range(1, 1000, 10)]
    stored = [new_chunk(1, 10, part, log_day=archiver.today) for part in parts]
    await insert(pool, *map(broken, stored[:-3]), *stored[-3:], seal=1000)
    assert await archiver.lines(1, tail=25) == [(10, seq) for seq in range(976, 1001)]
    assert await archiver.lines(1, since=at(NANOS + 980 * MINUTE)) == [(10, seq) for seq in range(980, 1001)]
    assert await archiver.lines(1, since=at(NANOS + 999 * MINUTE), follow=True) == [(10, 999), (10, 1000)]
    assert await archiver.lines(1, from_seq=985, head=2) == [(10, 985), (10, 986)]
    assert await archiver.lines(1, tail=1, grep="line 98") == [(10, 989)]
    size = sum(len(f"line {seq}\n") for seq in range(1, 981))
    text = [answer.data async for answer in archiver.read(1, token=10, raw=True, byte_from=size, byte_to=size + 8)]
    assert b"".join(text) == b"line 981"
    with pytest.raises(TobanError):
        await archiver.lines(1, head=1)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"grep": "(", "regex": True}, "missing"),
        ({"grep": "a{900}{900}", "regex": True}, "repetition|costly"),
        ({"grep": "[a-q][^u-z]{400}x", "regex": True}, "costly"),
        ({"grep": "x" * 1001}, "1001 characters"),
        ({"grep": "a\nb"}, "newline"),
        ({"regex": True}, "grep, which is not given"),
        ({"level": "loud"}, "unknown level 'loud'"),
        ({"since": at(NANOS), "until": at(NANOS)}, "until is not after since"),
        ({"head": 1, "tail": 1}, "exclude each other"),
        ({"head": -1}, "below 0"),
        ({"to_seq": -1}, "below 0"),
        ({"to_seq": 5, "follow": True}, "exclude each other"),
        ({"to_seq": 5, "raw": True}, "leave to_seq out"),
        ({"raw": True, "grep": "x"}, "leave grep out"),
        ({"raw": True, "streams": [3]}, "not 3"),
        ({"raw": True, "byte_from": 1}, "name its token"),
        ({"byte_to": 1, "token": 1}, "ask for raw"),
        ({"raw": True, "token": 1, "byte_from": 5, "byte_to": 4}, "end before"),
        ({"streams": [7]}, "unknown streams"),
    ],
)
async def test_questions_that_cannot_be_asked(archiver: Any, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(TobanError, match=words) as caught:
        await archiver.lines(1, **wrong)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


async def test_the_database_answers_as_the_model_does(pool: Pool, archiver: Any) -> None:
    """One conformance for the sides of a reader."""
    memory, database = MemoryChunks(), DatabaseSource(pool=pool)
    place = TokenPlace(log_day=archiver.today, run_id=1, token=10)
    for stream in (1, 2, 3):
        mine = [line(seq, "x" * seq, minute=seq, stream=stream) for seq in range(1, 61) if seq % 3 + 1 == stream]
        step = 3 * stream
        for begin in range(0, len(mine), step):
            chunk = new_chunk(1, 10, mine[begin : begin + step], log_day=archiver.today)
            memory.put(chunk)
            await insert(pool, chunk)
    spans = [ALWAYS, TimeSpan(since=at(NANOS + 30 * MINUTE)), TimeSpan(until=at(NANOS + 30 * MINUTE))]
    for after in ({1: 0, 2: 0, 3: 0}, {1: 20, 3: 7}, {2: 99}):
        for size in (1, 4, 100):
            for span in spans:
                given = {"after": after, "size": size}
                assert await database.page(place, **given, span=span) == await memory.page(place, **given, span=span)
            assert await database.heads_after(place, **given) == await memory.heads_after(place, **given)
    for seq in (1, 2, 30, 99):
        assert await database.starts(place, seq=seq) == await memory.starts(place, seq=seq)
        for streams in ([1], [2, 3], [1, 2, 3]):
            wanted = {"streams": streams, "before": seq, "size": 4}
            assert await database.heads(place, **wanted) == await memory.heads(place, **wanted)
    assert await database.sizes(1) == await memory.sizes(1)
    assert await database.places(1) == await memory.places(1)
    assert [row.place for row in await database.attempts(1)] == [place]
    assert json.dumps(await database.places(2)) == "{}"
