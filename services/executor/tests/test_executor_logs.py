"""From blocks of output to committed lines: chunks, back-pressure, re-sending."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import zstandard

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_executor.adapters.journal import Journal
from toban_executor.adapters.log_client import Packer
from toban_executor.decide.log_block import LogBlock
from toban_executor.loops.log_collector import Collector
from toban_executor.loops.log_shipper import Shipper
from toban_executor.ports import ChunkBatch, Shipped
from toban_proto.v1 import logs_pb2
from toban_testing.clock import FakeClock

KEY = AttemptKey(1, 101)


class InstantClock(FakeClock):
    """Sleeps for nothing."""

    async def sleep(self, seconds: float) -> None:
        """Return at once."""


def block(seq: int, text: bytes, *, stream: int = 1, partial: bool = False) -> LogBlock:
    return LogBlock(stream, partial, 1000 + seq, seq, max(1, text.count(b"\n")), text)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    made = Journal(tmp_path / "j")
    made.start()
    yield made
    made.close()


def collector(journal: Journal, held: list[bool], limit: int = 1 << 30) -> Collector:
    return Collector(journal=journal, pack=Packer(), hold=held.append, clock=InstantClock(), max_journal_bytes=limit)


def blocks(data: bytes) -> list[tuple[int, bytes, bool]]:
    parsed = logs_pb2.LogLines.FromString(zstandard.ZstdDecompressor().decompress(data))
    return [(one.seq, one.text, one.partial) for one in parsed.blocks]


async def test_blocks_become_one_chunk_a_stream(journal: Journal) -> None:
    it = collector(journal, [])
    it.opened(KEY, b"ticket")
    it.add(KEY, block(1, b"a\nb\n"))
    it.add(KEY, block(3, b"err\n", stream=2))
    it.add(KEY, block(4, b"rest", partial=True))
    it.closed(KEY, 4)
    assert await it.run_once() == 2
    batch = await journal.chunks_after(0, 10, 1 << 20)
    found = {one.stream: (one.seq_from, one.seq_to, one.lines, blocks(one.data)) for one in batch.chunks}
    assert found == {
        1: (1, 4, 3, [(1, b"a\nb\n", False), (4, b"rest", True)]),
        2: (3, 3, 1, [(3, b"err\n", False)]),
    }
    assert (batch.tickets, [seal.last_seq for seal in batch.seals]) == ({KEY: b"ticket"}, [4])
    assert not it.pending


async def test_a_silent_job_leaves_nothing(journal: Journal) -> None:
    it = collector(journal, [])
    it.opened(KEY, b"ticket")
    it.closed(KEY, 0)
    assert (it.pending, it._tickets) == (False, {})


async def test_guards_are_held_while_the_journal_is_over_its_share(journal: Journal) -> None:
    held: list[bool] = []
    it = collector(journal, held, limit=10)
    it.opened(KEY, b"t")
    it.add(KEY, block(1, bytes(range(32, 127)) * 3 + b"\n"))
    await it.run_once()
    assert held[-1] is True
    batch = await journal.chunks_after(0, 10, 1 << 20)
    journal.drop_chunks([one.id for one in batch.chunks], [])
    await it.run_once()
    assert held[-1] is False


class Archive:
    """Archivers of a test: `answers` are what the next batches get."""

    def __init__(self) -> None:
        self.answers: list[Shipped | TobanError] = []
        self.got: list[ChunkBatch] = []
        self.opened = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        self.opened += 1
        yield self

    async def append(self, batch: ChunkBatch) -> Shipped:
        answer = self.answers.pop(0) if self.answers else Shipped()
        if isinstance(answer, TobanError):
            raise answer
        self.got.append(batch)
        return answer


async def stored(journal: Journal) -> int:
    return len((await journal.chunks_after(0, 1000, 1 << 30)).chunks)


async def test_ships_until_nothing_is_left_and_forgets_what_was_committed(journal: Journal) -> None:
    it, archive = collector(journal, []), Archive()
    it.opened(KEY, b"t")
    for number in range(1, 301):
        it.add(KEY, block(number, b"line\n"))
        it._cut((KEY, 1))
    it.closed(KEY, 300)
    await it.run_once()
    shipper = Shipper(journal=journal, archivers=archive)
    assert await shipper.run_once() == 300
    assert [one.seq_from for batch in archive.got for one in batch.chunks] == list(range(1, 301))
    assert [seal.last_seq for batch in archive.got for seal in batch.seals] == [300]
    assert archive.got[-1].seals
    assert (await stored(journal), await shipper.run_once(), archive.opened) == (0, 0, 1)


class SlowArchive(Archive):
    """Commits nothing before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_commit = asyncio.Event()
        self.full = asyncio.Event()

    async def append(self, batch: ChunkBatch) -> Shipped:
        self.got.append(batch)
        if len(self.got) == 4:
            self.full.set()
        await self.may_commit.wait()
        return Shipped()


async def test_batches_follow_each_other_while_the_first_is_not_committed(journal: Journal) -> None:
    it, archive = collector(journal, []), SlowArchive()
    it.opened(KEY, b"t")
    for number in range(1, 64 * 6 + 1):
        it.add(KEY, block(number, b"line\n"))
        it._cut((KEY, 1))
    await it.run_once()
    shipping = asyncio.create_task(Shipper(journal=journal, archivers=archive).run_once())
    await archive.full.wait()
    await journal.flush()
    assert (len(archive.got), await stored(journal)) == (4, 64 * 6)
    archive.may_commit.set()
    assert await shipping == 64 * 6
    assert [one.seq_from for batch in archive.got for one in batch.chunks] == list(range(1, 64 * 6 + 1))
    assert await stored(journal) == 0


async def test_everything_uncommitted_goes_again(journal: Journal) -> None:
    it, archive = collector(journal, []), Archive()
    it.opened(KEY, b"t")
    it.add(KEY, block(1, b"line\n"))
    await it.run_once()
    archive.answers = [TobanError(ErrorCode.UNAVAILABLE, "down"), Shipped(lacks_ticket=True)]
    shipper = Shipper(journal=journal, archivers=archive)
    for _ in range(2):
        with pytest.raises(TobanError):
            await shipper.run_once()
        assert await stored(journal) == 1
    assert await shipper.run_once() == 1
    assert await stored(journal) == 0


async def test_what_can_never_be_stored_does_not_block_the_rest(journal: Journal) -> None:
    it, archive = collector(journal, []), Archive()
    it.opened(KEY, b"t")
    it.add(KEY, block(1, b"line\n"))
    await it.run_once()
    archive.answers = [Shipped(refused=[(KEY, 1, "TICKET_INVALID")])]
    await Shipper(journal=journal, archivers=archive).run_once()
    assert await stored(journal) == 0


async def test_refusals_are_told_in_one_line_a_code_however_many_they_are(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    it, archive = collector(journal, []), Archive()
    it.opened(KEY, b"t")
    for number in range(1, 41):
        it.add(KEY, block(number, b"line\n"))
        await it.run_once()
    refused = [(KEY, number, "TICKET_INVALID") for number in range(1, 40)]
    archive.answers = [Shipped(refused=[*refused, (KEY, 40, "CHUNK_INVALID")])]
    await Shipper(journal=journal, archivers=archive).run_once()
    assert await stored(journal) == 0
    assert caplog.text.count("archiver refused log lines") == 2
    assert "'code': 'TICKET_INVALID', 'chunks': 39" in caplog.text
    assert "'seq_from': 40, 'code': 'CHUNK_INVALID', 'chunks': 1" in caplog.text
