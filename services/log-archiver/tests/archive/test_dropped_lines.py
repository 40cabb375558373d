"""Lines that a limit left out: the numbers that no line has, so that an attempt is known to be whole without them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.dropped_lines import DATABASE_LIMIT, dropped_lines_text
from toban_log_archiver.decide.dropped_lines import DroppedNumbers, DropRecord, drop_record
from toban_log_archiver.decide.line import Line
from toban_log_archiver.store import chunks, log_attempts, partitions
from toban_log_archiver.store.log_attempts import TokenNote
from toban_proto.v1.logs_pb2 import LogLine
from toban_store.tx import autocommit, tx
from toban_testing.memory_chunk_source import new_chunk

FATES = ("stored", "left out", "both")
INCARNATION = "11111111-2222-4333-8444-555555555555"


OWN = dropped_lines_text(5, size="5 KiB", limit="10 lines a second").encode()
FULL = dropped_lines_text(5, size="5 KiB", limit=f"{DATABASE_LIMIT}, 50 GB").encode()


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (Line(9, 0, 1, OWN), DropRecord(9, 0)),
        (Line(9, 0, 3, b"stopped by force"), DropRecord(9, 0)),
        (Line(9, 0, 3, b"any text", dropped_lines=7), DropRecord(9, 7)),
        (Line(9, 0, 3, OWN, dropped_lines=7, dropped_chunk=True), DropRecord(9, 7, scattered=True)),
        (Line(9, 0, 3, OWN), DropRecord(9, 5)),
        (Line(9, 0, 3, FULL), DropRecord(9, 5, scattered=True)),
    ],
    ids=["of a job", "another own line", "an executor's", "a chunk", "stored earlier", "a chunk stored earlier"],
)
def test_what_a_line_counts(line: Line, record: DropRecord) -> None:
    """By its fields; by its text when it was stored before it had them."""
    assert drop_record(line) == record


def test_numbers_that_no_line_has() -> None:
    marks = DroppedNumbers()
    # A gap of 5 to 9 that line 5 announced and line 9 counts; one of 20 to 29; another line of the executor's own.
    marks.add([DropRecord(5, 0), DropRecord(9, 5), DropRecord(15, 0)])
    marks.add([DropRecord(29, 10)])
    assert marks.numbers == 3 + 9


@given(st.data(), st.lists(st.integers(1, 2), min_size=1, max_size=60), st.integers(1, 12))
def test_every_number_of_chunks_that_interleave_is_counted_once(
    data: st.DataObject, streams: list[int], size: int
) -> None:
    """Chunks of stdout and stderr are stored, left out, or (sent twice) both."""
    numbers = [[seq for seq, of in enumerate(streams, start=1) if of == stream] for stream in (1, 2)]
    pieces = [one[start : start + size] for one in numbers for start in range(0, len(one), size)]
    fates = data.draw(st.lists(st.sampled_from(FATES), min_size=len(pieces), max_size=len(pieces)))
    fated = list(zip(pieces, fates, strict=True))
    stored = [piece for piece, fate in fated if fate != "left out"]
    marks = sorted(DropRecord(piece[-1], len(piece), scattered=True) for piece, fate in fated if fate != "stored")
    counted = DroppedNumbers()
    counted.add(marks)
    for piece in stored:
        counted.stored(piece[-1])
    assert sum(map(len, stored)) + len(marks) + counted.numbers == len(streams)


def chunk(run_id: int, seqs: range, *, stream: int, text: str = "") -> Any:
    at = 10**18
    return new_chunk(
        run_id,
        10,
        [LogLine(seq=seq, at_unix_nanos=at, stream=stream, text=text.encode()) for seq in seqs],  # type: ignore[arg-type]
    )


def no_room(run_id: int, seqs: range) -> Any:
    words = dropped_lines_text(len(seqs), size="5 KiB", limit=f"{DATABASE_LIMIT}, 50 GB")
    return chunk(run_id, range(seqs[-1], seqs[-1] + 1), stream=3, text=words)


@pytest.mark.parametrize(("last_seq", "archived"), [(300, True), (301, False)])
async def test_chunks_that_the_database_had_no_room_for_are_archived_at_once(
    world: Any, last_seq: int, archived: bool
) -> None:
    """Two chunks of stdout and stderr whose lines took turns; of a third, which was sent twice, nothing is counted twice."""
    third = range(201, 301)
    kept = [no_room(1, range(1, 200, 2)), no_room(1, range(2, 201, 2)), no_room(1, third), chunk(1, third, stream=1)]
    async with autocommit(world.pool) as t:
        await partitions.ensure(t, first=world.old, last=world.old)
    async with tx(world.pool) as t:
        note = TokenNote(log_day=world.old, run_id=1, token=10, incarnation=INCARNATION, last_seq=last_seq)
        await log_attempts.note(t, [note])
        await chunks.append(t, [replace(one, log_day=world.old) for one in kept])
    await world.work()
    assert bool(await world.sql("SELECT 1 FROM logs.manifests")) == archived
