"""Bytes in are bytes out, all the way: guard, executor, journal, the log-archiver's checks, its reader's merge."""

import asyncio
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from toban_domain.dropped_lines import dropped_lines_text
from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey
from toban_executor.adapters.journal import Journal
from toban_executor.adapters.log_client import Packer, chunk_to_pb
from toban_executor.app.log_collector import LogCollector
from toban_executor.decide.models import LogRules
from toban_executor.guard.output_pipeline import OutputPipeline
from toban_executor.guard.protocol import decode_report, encode_block
from toban_log_archiver.adapters.chunk_codec import LogLinesCodec
from toban_log_archiver.app.append_session import checked
from toban_log_archiver.decide.line import Line
from toban_log_archiver.decide.merge import END, Merge
from toban_log_archiver.server.ingest import chunk_from_pb
from toban_testing.clock import FakeClock

KEY = AttemptKey(1, 101)
DAY = date(2026, 11, 21)
NANOS = 1_800_000_000_000_000_000

Reads = Sequence[tuple[int, bytes]]
"""(stream, bytes) of each read, in order."""


class InstantClock(FakeClock):
    """Sleeps for nothing."""

    async def sleep(self, seconds: float) -> None:
        """Return at once."""


def captured(reads: Reads) -> list[LogBlock]:
    """What the executor hears from the guard."""
    it = OutputPipeline(LogRules(), env={}, payload_json="", now=lambda: 0.0, now_ns=lambda: NANOS)
    pipes = {number: it.stream(number) for number in (1, 2)}
    blocks = [block for stream, data in reads for block in pipes[stream].feed(data)]
    blocks += [block for pipe in pipes.values() for block in pipe.finish()] + it.finish()
    heard = [decode_report(encode_block(block)) for block in blocks]
    return [block for block in heard if isinstance(block, LogBlock)]


async def archived(folder: str, blocks: Sequence[LogBlock]) -> list[Line]:
    """What a reader gets of them; every chunk is one that the archiver takes."""
    journal = Journal(Path(folder) / "journal.sqlite3")
    journal.start()
    try:
        guards: Any = SimpleNamespace(hold_output=lambda _on: None, ack_offsets=dict, ack=lambda _offsets: None)
        it = LogCollector(
            journal=journal,
            guards=guards,
            pack=Packer(),
            clock=InstantClock(),
            max_journal_bytes=1 << 30,
            wake=lambda: None,
            wake_shipper=lambda: None,
            report=lambda _report: None,
        )
        it.opened(KEY, b"ticket")
        for block in blocks:
            it.add(KEY, block)
            if block.seq_from % 3 == 0:
                await it.run_once()
        it.closed(KEY, blocks[-1].seq_from + blocks[-1].lines - 1 if blocks else 0)
        await it.run_once()
        batch = await journal.chunks_after(0, 10_000, 1 << 30)
        codec = LogLinesCodec()
        merge: Merge[Line] = Merge(decode=codec.lines)
        for chunk in sorted(batch.chunks, key=lambda one: one.seq_from):
            merge.add(chunk.stream, checked(codec, chunk_from_pb(chunk_to_pb(chunk)), DAY).data)
        return list(merge.ready(END))
    finally:
        journal.close()


def read_back(reads: Reads) -> list[Line]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(archived(folder, captured(reads)))


def text(lines: Sequence[Line], stream: int) -> bytes:
    return b"".join(line.text if line.partial else line.text + b"\n" for line in lines if line.stream == stream)


pieces = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [b"\n", b"\r\n", b"40%\r50%\r", b"\0\0", b"\x1b[31mred\x1b[0m", b"\xff\xfe\n", b'{"level":"info"}\n']
    ),
    st.integers(16_380, 16_390).map(lambda size: b"l" * size),
)


@given(st.lists(st.tuples(st.sampled_from([1, 2]), pieces), max_size=12))
@example([(1, b"no newline at the end")])
@example([(1, b"a\nb"), (2, b"c\n"), (1, b"\n")])
def test_bytes_in_are_bytes_out(reads: Reads) -> None:
    lines = read_back(reads)
    for stream in (1, 2):
        assert text(lines, stream) == b"".join(data for number, data in reads if number == stream)
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1))


def test_a_flood_of_empty_lines_makes_chunks_that_an_archiver_takes() -> None:
    lines = read_back([(1, b"\n" * 65_536)] * 8)
    assert len(lines) == 8 * 65_536


def test_levels_are_told_and_bytes_stay() -> None:
    lines = read_back([(1, b'{"level":"error","x":1}\nplain\nlevel=warn msg=x\r\n')])
    assert [(line.text, line.level) for line in lines] == [
        (b'{"level":"error","x":1}', "error"),
        (b"plain", ""),
        (b"level=warn msg=x\r", "warning"),
    ]


def test_the_number_of_dropped_lines_is_a_field_of_the_line_that_counts_them() -> None:
    text = dropped_lines_text(5, size="1 KiB", limit="10 lines a second (max_lines_per_second)").encode()
    own = LogBlock(stream=3, partial=False, at_ns=NANOS, seq_from=6, lines=1, text=text + b"\n")
    other = LogBlock(stream=3, partial=False, at_ns=NANOS, seq_from=7, lines=2, text=b"stopped\nby force\n")
    with tempfile.TemporaryDirectory() as folder:
        lines = asyncio.run(archived(folder, [own, other]))
    assert [(line.text, line.dropped_lines, line.dropped_chunk) for line in lines] == [
        (text, 5, False),
        (b"stopped", 0, False),
        (b"by force", 0, False),
    ]
