"""A log-archiver whose budget is used up: what executors send is acknowledged, and readers see how much of it was left out."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from toban_domain.dropped_lines import dropped_line_count, is_database_drop
from toban_log_archiver.loops import archive_watch
from toban_proto.v1.logs_pb2 import LOG_STREAM_SYSTEM

NOISE = random.Random(3)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_watch, "is_full", lambda _used, *, was_full: was_full or True)


async def test_what_is_left_out_is_counted_and_followers_do_not_wait(full: None, archiver: Any) -> None:
    async with asyncio.timeout(60):
        for run_id in range(1, 200):
            seqs = range(1, 51)
            data = archiver.frame(seqs, text=lambda seq: NOISE.randbytes(40) if seq < 50 else b"last")
            await archiver.store(run_id, 10, archiver.chunk(run_id, 10, seqs, data=data), seal=50)
            lines = [line async for answer in archiver.read(run_id, follow=True) for line in answer.lines]
            if len(lines) == 1:
                break
    (line,) = lines
    assert (line.seq, line.stream, dropped_line_count(line.text)) == (50, LOG_STREAM_SYSTEM, 50)
    assert is_database_drop(line.text)
    # Sent again, it is stored once; a short output is kept.
    await archiver.store(run_id, 10, archiver.chunk(run_id, 10, seqs, data=data))
    assert await archiver.lines(run_id) == [(10, 50)]
    await archiver.store(500, 10, archiver.chunk(500, 10, [1, 2]), seal=2)
    assert await archiver.lines(500) == [(10, 1), (10, 2)]
