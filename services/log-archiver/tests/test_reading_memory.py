"""A log that fits into no reader: memory stays flat while it is read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest

from toban_log_archiver.store import chunks, log_attempts
from toban_log_archiver.store.log_attempts import TokenNote
from toban_observability.metrics import REGISTRY
from toban_proto.v1.logs_pb2 import LogLine
from toban_store.pool import Pool
from toban_store.tx import tx
from toban_testing.kept_sessions import kept_pool
from toban_testing.memory_chunk_source import new_chunk

CHUNKS = 200
LINES = 256
TEXT = 4096
"""200 chunks of 1 MiB of text."""
GROWTH = 60 * 1024 * 1024
"""Server and client are this one process: pages, one open chunk, answers under way, and what the allocators keep."""
NANOS = 1_800_000_000_000_000_000


@pytest.fixture
async def pool(pg_url: str) -> AsyncIterator[Pool]:
    one = await kept_pool(pg_url, max_size=1)
    yield one
    await one.close()


async def fill(pool: Pool, day: Any) -> None:
    """Straight into the table: lines of noise that is packed well, two streams in turn."""
    async with tx(pool) as t:
        note = TokenNote(log_day=day, run_id=1, token=10, incarnation="11111111-2222-4333-8444-555555555555")
        await log_attempts.note(t, [note])
        for number in range(CHUNKS):
            first = number * LINES + 1
            lines = [
                LogLine(seq=seq, at_unix_nanos=NANOS + seq, stream=number % 2 + 1, text=(b"%08d " % seq) * (TEXT // 9))  # type: ignore[arg-type]
                for seq in range(first, first + LINES)
            ]
            await chunks.append(t, [new_chunk(1, 10, lines, log_day=day)])


@pytest.mark.long
async def test_two_hundred_megabytes_in_flat_memory(archiver: Any, pool: Pool) -> None:
    await fill(pool, archiver.today)
    process = psutil.Process(os.getpid())
    # What is loaded and kept at the first use of anything is not growth.
    await archiver.lines(1, tail=500)
    start = process.memory_info().rss
    highest, expected, size = start, 1, 0
    async for answer in archiver.read(1):
        for line in answer.lines:
            assert line.seq == expected
            expected += 1
            size += len(line.text)
        highest = max(highest, process.memory_info().rss)
    assert expected == CHUNKS * LINES + 1
    assert size > 190 * 1024 * 1024
    async for _ in archiver.read(1, raw=True, token=10, byte_from=size // 2):
        highest = max(highest, process.memory_info().rss)
    assert await archiver.lines(1, grep=f"{CHUNKS * LINES:08d}") == [(10, CHUNKS * LINES)]
    highest = max(highest, process.memory_info().rss)
    assert highest - start < GROWTH


def sent() -> float:
    return REGISTRY.get_sample_value("toban_log_text_read_bytes_total") or 0.0


async def test_a_caller_that_does_not_read_is_not_read_for(archiver: Any, pool: Pool) -> None:
    """What a stream cannot carry stays in the database: flow control reaches back to the pages."""
    await fill(pool, archiver.today)
    before = sent()
    answers = archiver.read(1)
    await anext(answers)
    # Long enough for the whole log, were it not held back.
    await asyncio.sleep(2)
    assert sent() - before < 40 * 1024 * 1024
    await answers.aclose()
