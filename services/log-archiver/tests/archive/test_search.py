"""Search over many runs: from database and archive the same, in bounded pieces that a caller puts together."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.settings import Settings
from toban_log_archiver.app import line_reader, search
from toban_log_archiver.server.log_reader_service import LogReader
from toban_log_archiver.store import chunks, log_attempts, partitions
from toban_log_archiver.store.log_attempts import TokenNote
from toban_proto.v1 import logs_pb2 as pb
from toban_store.tx import autocommit, tx
from toban_testing.memory_chunk_source import at, new_chunk
from toban_testing.waiting import until

NANOS = 1_800_000_000_000_000_000
MINUTE = 60 * 10**9
RUNS = tuple(range(30, 0, -1))
INCARNATION = "11111111-2222-4333-8444-555555555555"


async def insert(world: Any, run_id: int, lines: list[pb.LogLine], *, token: int = 10) -> None:
    async with autocommit(world.pool) as t:
        await partitions.ensure(t, first=world.old, last=world.old)
    note = TokenNote(log_day=world.old, run_id=run_id, token=token, incarnation=INCARNATION, last_seq=lines[-1].seq)
    async with tx(world.pool) as t:
        await log_attempts.note(t, [note])
        by_stream = [[line for line in lines if line.stream == stream] for stream in (1, 2)]
        await chunks.append(t, [new_chunk(run_id, token, part, log_day=world.old) for part in by_stream if part])


async def fill(world: Any) -> None:
    """Every run writes "start", "value RUN" and an error, a minute apart; odd runs have two attempts."""
    for run_id in RUNS:
        for token in (10, 20) if run_id % 2 else (10,):
            begin = NANOS + run_id * 10 * MINUTE
            lines = [
                pb.LogLine(seq=1, at_unix_nanos=begin, stream=pb.LOG_STREAM_STDOUT, text=b"start"),
                pb.LogLine(seq=2, at_unix_nanos=begin + MINUTE, stream=pb.LOG_STREAM_STDOUT, text=b"value %d" % run_id),
                pb.LogLine(
                    seq=3,
                    at_unix_nanos=begin + 2 * MINUTE,
                    stream=pb.LOG_STREAM_STDERR,
                    text=b"disk full",
                    level="error",
                ),
            ]
            await insert(world, run_id, lines, token=token)


async def once(reader: LogReader, **given: Any) -> tuple[list[tuple[int, int, int]], pb.SearchLogResponse]:
    """(run, token, seq) of each hit of one call, and its last answer."""
    answers = [one async for one in reader.Search(pb.SearchLogRequest(**given), None)]
    assert not any(one.cut for one in answers[:-1])
    return [(hit.run_id, hit.token, hit.line.seq) for one in answers for hit in one.hits], answers[-1]


async def whole(reader: LogReader, **given: Any) -> tuple[list[tuple[int, int, int]], int]:
    """Every hit, over as many calls as it takes, and how many these were."""
    found, last = await once(reader, **given)
    calls = 1
    while last.cut:
        more, last = await once(reader, **given, after=last.position)
        found += more
        calls += 1
    return found, calls


def places(seq: int, runs: Any = RUNS) -> list[tuple[int, int, int]]:
    return [(run_id, token, seq) for run_id in runs for token in ((10, 20) if run_id % 2 else (10,))]


async def test_the_same_lines_before_while_and_after_they_move(world: Any) -> None:
    await fill(world)
    reader = world.reader()
    noon = NANOS + 20 * 10 * MINUTE
    for moved in (False, True, True):
        given = {"run_ids": RUNS}
        assert (await whole(reader, **given, grep="value"))[0] == places(2)
        assert (await whole(reader, **given, grep="^value 1[0-3]$", regex=True))[0] == places(2, (13, 12, 11, 10))
        assert (await whole(reader, **given, level="warning", streams=[2]))[0] == places(3)
        assert (await whole(reader, **given, grep="disk", streams=[1]))[0] == []
        since = (await whole(reader, **given, grep="start", since=at(noon), until=at(noon + 20 * MINUTE)))[0]
        assert since == places(1, (21, 20))
        assert (await whole(reader, run_ids=[3, 99, 3, 5], grep="value"))[0] == places(2, (3, 5))
        if moved is False:
            # Objects of a few runs each: the search crosses them, and half of the day is still in the database when it is cut short.
            with pytest.raises(RuntimeError):
                await world.work(target_bytes=2000, before_step=_break_at("committed", 3))
        else:
            await world.work(target_bytes=2000, lease_seconds=0.0)
    assert not await world.has_day()


def _break_at(step: str, number: int) -> Any:
    seen = 0

    def before_step(name: str) -> None:
        nonlocal seen
        seen += name == step
        if name == step and seen == number:
            raise RuntimeError(step)

    return before_step


async def test_a_search_that_is_cut_goes_on_where_it_was(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(world)
    reader = world.reader()
    for regex in (False, True):
        found, calls = await whole(reader, run_ids=RUNS, grep="value", limit=4, regex=regex)
        assert (found, calls) == (places(2), len(places(2)) // 4 + 1)
        found, calls = await whole(reader, run_ids=RUNS, limit=4, regex=False)
        assert len(found) == len(set(found)) == 3 * len(places(1))
    # Nothing is found, and the price of a call is one chunk: each call gets further.
    monkeypatch.setattr(search, "MAX_BYTES", 1)
    found, calls = await whole(reader, run_ids=RUNS, grep="nowhere")
    assert (found, calls) == ([], len(places(1)) + 1)
    _, last = await once(reader, run_ids=RUNS, grep="nowhere")
    assert (last.cut, last.position.run_id, last.bytes > 0) == ("bytes", 30, True)
    monkeypatch.setattr(search, "MAX_SECONDS", 0.0)
    assert (await whole(reader, run_ids=RUNS, grep="value"))[0] == places(2)


async def test_thousands_of_runs_cost_few_questions(world: Any) -> None:
    await fill(world)
    asked: list[str] = []
    source = world.source()

    class Counting:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(source, name)

    reader = world.reader(source=Counting())
    runs = list(range(1000, 0, -1))
    noon = NANOS + 20 * 10 * MINUTE
    found, last = await once(reader, run_ids=runs, grep="value", since=at(noon), until=at(noon + 5 * MINUTE))
    assert found == places(2, (20,))
    assert (last.runs, last.cut) == (1000, "")
    assert len(asked) == 10 * 2 + 1, "runs without a line of that time are not asked about one by one"


async def test_what_has_expired_is_counted(world: Any) -> None:
    await fill(world)
    await world.work()
    world.settings.known = Settings({"log_retention_days_archive": 8})
    await world.work()
    assert (await once(world.reader(), run_ids=[1, 2], grep="value"))[1].expired_attempts == 3
    # Over several calls each is counted in one of them.
    for run_id in (40, 39, 38):
        await insert(
            world, run_id, [pb.LogLine(seq=1, at_unix_nanos=NANOS, stream=pb.LOG_STREAM_STDOUT, text=b"value")]
        )
    counts, after, cut = [], None, True
    while cut:
        last = (await once(world.reader(), run_ids=[2, 40, 1, 39, 38], grep="value", limit=1, after=after))[1]
        counts.append(last.expired_attempts)
        after, cut = last.position, bool(last.cut)
    assert (sum(counts), len(counts)) == (3, 4)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "name 1 to 1000"),
        ({"run_ids": range(1, 1002)}, "1001 run_ids"),
        ({"run_ids": [0]}, "not a run"),
        ({"run_ids": [1], "limit": 10_001}, "limit 10001"),
        ({"run_ids": [1], "after": {"run_id": 2}}, "none of run_ids"),
        ({"run_ids": [1], "grep": "(", "regex": True}, "missing"),
        ({"run_ids": [1], "streams": [7]}, "unknown streams"),
        ({"run_ids": [1], "level": "loud"}, "unknown level"),
    ],
)
async def test_searches_that_cannot_be_asked(world: Any, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(TobanError, match=words) as caught:
        await once(world.reader(), **wrong)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


# About the dearest that is taken: its automaton does not fit into memory, so each byte costs each of its steps (0.4 s a line here).
COSTLY = "a[ab]{480}c"


async def test_a_costly_expression_holds_no_thread_and_ends_with_its_caller(world: Any) -> None:
    """One line after the other, a second a slice, in threads of its own; another reader is not kept waiting."""
    noise = random.Random(7)
    text = bytes(noise.choice(b"ab") for _ in range(60_000))
    lines = [pb.LogLine(seq=seq, at_unix_nanos=NANOS, stream=pb.LOG_STREAM_STDOUT, text=text) for seq in range(1, 41)]
    await insert(world, 1, lines)
    reader = world.reader()
    slices: list[str] = []

    def seen() -> int:
        slices.extend(one.name for one in threading.enumerate() if one.name.startswith("toban-search"))
        return len({*slices})

    answers = reader.Search(pb.SearchLogRequest(run_ids=[1], grep=COSTLY, regex=True), None)
    first = asyncio.ensure_future(anext(answers))
    others = [reader.Search(pb.SearchLogRequest(run_ids=[1], grep=COSTLY, regex=True), None) for _ in range(3)]
    waiting = [asyncio.ensure_future(anext(one)) for one in others]
    await until(seen)
    read = asyncio.ensure_future(world.read(1, tail=1))
    done, _ = await asyncio.wait([read, first, *waiting], return_when=asyncio.FIRST_COMPLETED)
    assert done == {read} and await read == [(10, 40, text)]
    async with asyncio.timeout(60):
        said = await first
        await asyncio.gather(*waiting)
    assert (len(said.hits), said.position.run_id) == (0, 1)
    assert 1 <= said.position.seq < 40, "the sign of life says how far it is"
    assert seen() <= line_reader.SEARCH_THREADS
    for one in (answers, *others):
        await one.aclose()
