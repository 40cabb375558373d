"""Chunks are committed in groups, in order; room is bounded; an error reaches those whose work it concerns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import pytest

from toban_domain.errors import ErrorCode
from toban_log_archiver.app import chunk_writer
from toban_log_archiver.app.chunk_writer import MAX_TRIES, ChunkWriter, Work
from toban_log_archiver.decide.stored_chunks import NewChunk
from toban_runtime.clock import SystemClock
from toban_store.errors import DidNotHappen, Refused, StoreError

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def work(seq: int, *, size: int = 10) -> Work:
    chunk = NewChunk(
        log_day=date(2030, 1, 1),
        run_id=1,
        token=1,
        stream=1,
        seq_from=seq,
        seq_to=seq,
        line_count=1,
        raw_bytes=size,
        first_at=NOW,
        last_at=NOW,
        data=b"x" * size,
    )
    return Work(chunks=[chunk])


class Writes:
    """Stands in for the transaction: records groups, waits for `go`, raises what `failures` has for a sequence number."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.failures: dict[int, Exception] = {}
        self.go = asyncio.Event()
        self.begun = asyncio.Event()

    async def __call__(self, works: Sequence[Work]) -> dict[Any, str]:
        seqs = [chunk.seq_from for one in works for chunk in one.chunks]
        self.groups.append(seqs)
        self.begun.set()
        await self.go.wait()
        for seq in seqs:
            if seq in self.failures:
                raise self.failures[seq]
        return {chunk.place: "differs" for one in works for chunk in one.chunks if chunk.seq_from == 99}


@pytest.fixture
def writes() -> Writes:
    return Writes()


@pytest.fixture
def writer(writes: Writes, monkeypatch: pytest.MonkeyPatch) -> ChunkWriter:
    made = ChunkWriter(pool=None, clock=SystemClock(), on_missing_partition=lambda: None)  # type: ignore[arg-type]
    monkeypatch.setattr(made, "_write", writes)
    return made


async def test_what_is_submitted_during_a_commit_shares_the_next_in_order(writer: ChunkWriter, writes: Writes) -> None:
    futures = [await writer.submit(work(1))]
    await writes.begun.wait()
    futures += [await writer.submit(work(seq)) for seq in (2, 99, 3)]
    writes.go.set()
    results = await asyncio.gather(*futures)
    assert writes.groups == [[1], [2, 99, 3]]
    assert [list(one.values()) for one in results] == [[], [], ["differs"], []]


async def test_submitters_wait_while_too_much_is_not_committed(
    writer: ChunkWriter, writes: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_writer, "MAX_WAITING_BYTES", 15)
    await writer.submit(work(1))
    last = await writer.submit(work(2))
    third = asyncio.create_task(writer.submit(work(3)))
    await writes.begun.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not third.done()
    assert (await writer.submit(Work())).done(), "nothing needs no room"
    writes.go.set()
    await last
    assert await (await third) == {}


async def test_after_a_refusal_only_the_bad_request_fails(writer: ChunkWriter, writes: Writes) -> None:
    writes.failures = {2: Refused("bad text", sqlstate="22021"), 3: DidNotHappen(ErrorCode.INTERNAL, "no")}
    writer._backoff = type("None_", (), {"delay": lambda _self, _attempt: 0.0})()  # type: ignore[assignment]
    futures = [await writer.submit(work(seq)) for seq in (1, 2, 3, 4)]
    writes.go.set()
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert writes.groups == [[1, 2, 3, 4], [1], [2], *[[3]] * MAX_TRIES, [4]]
    assert (results[0], results[3]) == ({}, {})
    assert list(results[1].values()) == ["cannot be stored: bad text"]  # type: ignore[union-attr]
    assert isinstance(results[2], StoreError)


async def test_an_outage_fails_the_whole_group_and_frees_its_room(
    writer: ChunkWriter, writes: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_writer, "MAX_TRIES", 1)
    monkeypatch.setattr(chunk_writer, "MAX_WAITING_BYTES", 15)
    writes.failures[2] = DidNotHappen(ErrorCode.UNAVAILABLE, "away")
    futures = [await writer.submit(work(seq)) for seq in (1, 2)]
    writes.go.set()
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(one) for one in results] == [DidNotHappen, DidNotHappen]
    assert await (await writer.submit(work(4))) == {}


async def test_an_unexpected_error_reaches_the_streams_and_the_writer_works_on(
    writer: ChunkWriter, writes: Writes
) -> None:
    writes.failures[1] = RuntimeError("defect")
    writes.go.set()
    with pytest.raises(RuntimeError, match="defect"):
        await (await writer.submit(work(1)))
    assert await (await writer.submit(work(2))) == {}


async def test_closing_cancels_what_is_not_committed(writer: ChunkWriter, writes: Writes) -> None:
    future = await writer.submit(work(1))
    await writes.begun.wait()
    await writer.close()
    assert future.cancelled()
