"""From the journal to committed lines: order, batches in flight, repeats."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey
from toban_executor.adapters.journal import Journal
from toban_executor.loops.log_shipper import LogShipper
from toban_executor.ports.journal import JournalBatch
from toban_executor.ports.logs import Chunk, ChunkBatch, Seal, Shipped

KEY = AttemptKey(1, 101)


def block(seq: int) -> LogBlock:
    return LogBlock(1, False, 1000 + seq, seq, 1, b"line\n")


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    made = Journal(tmp_path / "j")
    made.start()
    yield made
    made.close()


async def fill(journal: Journal, lines: int, *, seal: bool = False) -> None:
    """A chunk for each of so many lines."""
    chunks = [Chunk.of(KEY, [block(number)], b"data") for number in range(1, lines + 1)]
    seals = [Seal(KEY, lines)] if seal else []
    await journal.store(JournalBatch(chunks=chunks, seals=seals, tickets={KEY: b"t"}))


class Archive:
    """Archivers of a test: `answers` are what the next batches get."""

    def __init__(self) -> None:
        self.answers: list[Shipped | TobanError] = []
        self.got: list[ChunkBatch] = []
        self.opened = 0
        self.others = 0
        # Refuse every chunk with this code.
        self.refusing = ""

    def try_another(self) -> None:
        self.others += 1

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        self.opened += 1
        yield self

    async def append(self, batch: ChunkBatch) -> Shipped:
        answer = self.answers.pop(0) if self.answers else Shipped()
        if isinstance(answer, TobanError):
            raise answer
        self.got.append(batch)
        if self.refusing:
            return Shipped(refused=[(chunk.key, chunk.seq_from, self.refusing) for chunk in batch.chunks])
        return answer


async def stored(journal: Journal) -> int:
    return len((await journal.chunks_after(0, 1000, 1 << 30)).chunks)


async def test_ships_until_nothing_is_left_and_forgets_what_was_committed(journal: Journal) -> None:
    archive = Archive()
    await fill(journal, 300, seal=True)
    shipper = LogShipper(journal=journal, archivers=archive)
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
    archive = SlowArchive()
    await fill(journal, 64 * 6)
    shipping = asyncio.create_task(LogShipper(journal=journal, archivers=archive).run_once())
    await archive.full.wait()
    await journal.flush()
    assert (len(archive.got), await stored(journal)) == (4, 64 * 6)
    archive.may_commit.set()
    assert await shipping == 64 * 6
    assert [one.seq_from for batch in archive.got for one in batch.chunks] == list(range(1, 64 * 6 + 1))
    assert await stored(journal) == 0


async def test_everything_uncommitted_goes_again(journal: Journal) -> None:
    archive = Archive()
    await fill(journal, 1)
    archive.answers = [TobanError(ErrorCode.UNAVAILABLE, "down"), Shipped(lacks_ticket=True)]
    shipper = LogShipper(journal=journal, archivers=archive)
    for _ in range(2):
        with pytest.raises(TobanError):
            await shipper.run_once()
        assert await stored(journal) == 1
    assert await shipper.run_once() == 1
    assert await stored(journal) == 0


async def test_what_can_never_be_stored_does_not_block_the_rest(journal: Journal) -> None:
    archive = Archive()
    await fill(journal, 1)
    archive.answers = [Shipped(refused=[(KEY, 1, "CHUNK_INVALID")])]
    await LogShipper(journal=journal, archivers=archive).run_once()
    assert await stored(journal) == 0
    assert await journal.requeue_chunks(10) == (0, 0)


async def test_what_a_misconfigured_archiver_refuses_is_kept_and_stored_later(journal: Journal) -> None:
    archive = Archive()
    await fill(journal, 3, seal=True)
    # The archiver does not accept the ticket: neither the lines nor the end of the attempt.
    archive.answers = [Shipped(refused=[(KEY, number, "TICKET_INVALID") for number in (1, 2, 3, 0)])]
    shipper = LogShipper(journal=journal, archivers=archive)
    await shipper.run_once()
    assert await stored(journal) == 0 and archive.others == 1
    assert await shipper.resend()
    await shipper.run_once()
    last = archive.got[-1]
    assert [chunk.seq_from for chunk in last.chunks] == [1, 2, 3]
    assert ([seal.last_seq for seal in last.seals], last.tickets) == ([3], {KEY: b"t"})
    assert not await shipper.resend()
    # Everything is committed, so the ticket is dropped too.
    assert (await journal.chunks_after(0, 10, 1000)).tickets == {}


async def test_quarantined_lines_do_not_hold_up_new_ones(journal: Journal) -> None:
    archive = Archive()
    other = AttemptKey(2, 102)
    await fill(journal, 1)
    archive.answers = [Shipped(refused=[(KEY, 1, "TICKET_INVALID")])]
    shipper = LogShipper(journal=journal, archivers=archive)
    await shipper.run_once()
    await journal.store(JournalBatch(chunks=[Chunk.of(other, [block(1)], b"data")], tickets={other: b"o"}))
    assert await shipper.run_once() == 1
    assert [chunk.key for chunk in archive.got[-1].chunks] == [other]


async def test_a_refused_probe_leaves_the_rest_in_quarantine(journal: Journal) -> None:
    archive = Archive()
    await fill(journal, 200)
    archive.refusing = "TICKET_INVALID"
    shipper = LogShipper(journal=journal, archivers=archive)
    await shipper.run_once()
    archive.got.clear()
    assert await shipper.resend()
    assert await shipper.run_once() == 64 and len(archive.got) == 1
    archive.refusing = ""
    assert await shipper.resend()
    assert await shipper.run_once() == 200
    assert await journal.requeue_chunks(10) == (0, 0)


async def test_refusals_are_logged_in_one_line_a_code_however_many_they_are(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    archive = Archive()
    await fill(journal, 40)
    refused = [(KEY, number, "TICKET_INVALID") for number in range(1, 40)]
    archive.answers = [Shipped(refused=[*refused, (KEY, 40, "CHUNK_INVALID")])]
    await LogShipper(journal=journal, archivers=archive).run_once()
    assert await stored(journal) == 0
    assert caplog.text.count("archiver refused log lines") == 2
    assert "'code': 'TICKET_INVALID', 'chunks': 39" in caplog.text
    assert "'seq_from': 40, 'code': 'CHUNK_INVALID', 'chunks': 1" in caplog.text
