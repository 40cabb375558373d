"""Output of jobs on its way to disk: an attempt whose end is known has its whole log, whatever the disk does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey
from toban_executor.adapters.journal import Journal
from toban_executor.adapters.log_client import Packer
from toban_executor.app.log_collector import CHECK_SECONDS, GATHER_SECONDS, OFFSETS_RETRY_SECONDS, LogCollector
from toban_executor.decide.models import Report
from toban_executor.decide.outcome import OUTCOME_TIMEOUT_SECONDS
from toban_executor.ports.journal import JournalBatch
from toban_proto.v1 import logs_pb2
from toban_testing.clock import FakeClock

KEY, KEYS = AttemptKey(1, 101), [AttemptKey(number, 100 + number) for number in range(3)]


def refused() -> TobanError:
    return TobanError(ErrorCode.UNAVAILABLE, "no space left")


class Disk:
    """A journal whose every write waits until the test ends it, also when its caller was cancelled."""

    def __init__(self) -> None:
        self.lines: dict[AttemptKey, int] = {}
        self.sealed: dict[AttemptKey, int] = {}
        self.kept: list[AttemptKey] = []
        self.offsets: dict[str, int] = {}
        self.begun = 0
        self.storing: JournalBatch | None = None
        self.under_way: asyncio.Future[None] | None = None

    async def store(self, batch: JournalBatch) -> int:
        assert self.under_way is None, "one write at a time"
        self.begun += 1
        self.storing = batch
        self.under_way = asyncio.get_running_loop().create_future()
        await self.under_way
        for chunk in batch.chunks:
            assert self.lines.get(chunk.key, 0) + 1 == chunk.seq_from
            self.lines[chunk.key] = chunk.seq_to
        self.sealed.update({seal.key: seal.last_seq for seal in batch.seals})
        self.kept += [report.key for report in batch.reports]
        self.offsets.update(batch.ack_offsets)
        return 0

    def put_report(self, report: Report) -> None:
        self.kept.append(report.key)


class Bench:
    """A collector whose turns follow each other as those of its loop do."""

    def __init__(self) -> None:
        self.disk, self.clock = Disk(), FakeClock()
        self.reported: list[AttemptKey] = []
        self.offsets: dict[str, int] = {}
        guards: Any = SimpleNamespace(
            hold_output=lambda _hold: None, ack_offsets=lambda: dict(self.offsets), ack=self.acknowledge
        )
        self.it = LogCollector(
            journal=self.disk,  # type: ignore[arg-type]
            guards=guards,
            pack=lambda _blocks: b"",
            clock=self.clock,
            max_journal_bytes=1 << 30,
            wake=lambda: None,
            wake_shipper=lambda: None,
            report=lambda report: self.reported.append(report.key),
        )
        self.written: dict[AttemptKey, int] = {}
        self._turn: asyncio.Task[int] | None = None

    def line(self, key: AttemptKey) -> None:
        if key not in self.written:
            self.it.opened(key, b"t")
        self.written[key] = number = self.written.get(key, 0) + 1
        self.it.add(key, LogBlock(1, False, number, number, 1, b"x\n"))

    def end(self, key: AttemptKey) -> None:
        self.it.closed(key, self.written.get(key, 0))
        self.it.submit_outcome(Report(key=key, seq=2))

    async def turn(self) -> None:
        """Let the loop go on as far as it can."""
        if self._turn is None or self._turn.done():
            self._turn = asyncio.ensure_future(self.it.run_once())
            self._turn.add_done_callback(lambda turn: turn.cancelled() or turn.exception())
        await settle()

    async def stop_turn(self) -> None:
        """The loop is stopped while its turn writes."""
        await self.turn()
        await self.clock.advance(GATHER_SECONDS)
        assert self.disk.under_way is not None
        await self.cut_turn()

    async def cut_turn(self) -> None:
        """Whatever the turn is at; the next one comes after it."""
        if self._turn is not None:
            self._turn.cancel()
        await settle()

    def failure(self) -> BaseException | None:
        """Of the last turn, which has ended."""
        assert self._turn is not None
        return self._turn.exception()

    def acknowledge(self, offsets: Mapping[str, int]) -> None:
        """Messages up to these are on disk."""
        self.offsets = {name: number for name, number in self.offsets.items() if offsets.get(name, 0) < number}

    async def write(self, error: TobanError | None = None) -> None:
        """The write under way ends."""
        if (ended := self.disk.under_way) is not None:
            self.disk.under_way = None
            ended.set_exception(error) if error else ended.set_result(None)
        await settle()

    def whole(self, key: AttemptKey) -> bool:
        last = self.written.get(key, 0)
        return self.disk.lines.get(key, 0) == last and (not last or self.disk.sealed.get(key) == last)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_end_is_written_at_once_and_reported_when_it_is_there() -> None:
    bench, key = Bench(), KEYS[0]
    bench.line(key)
    await bench.turn()
    assert bench.disk.under_way is None, "it gathers"
    bench.end(key)
    await bench.turn()
    assert (bench.clock.monotonic(), bench.disk.under_way is not None) == (0.0, True), "no timer was waited for"
    assert bench.reported == []
    await bench.write()
    assert (bench.reported, bench.disk.kept, bench.whole(key)) == ([key], [key], True)
    assert not bench.it.pending


async def test_a_silent_attempt_waits_for_nothing() -> None:
    bench, key = Bench(), KEYS[0]
    bench.it.opened(key, b"t")
    bench.end(key)
    assert (bench.reported, bench.disk.kept) == ([key], [key])


async def test_an_end_after_the_write_has_begun_goes_with_the_next() -> None:
    bench, key, other = Bench(), *KEYS[:2]
    for one in (key, other):
        bench.line(one)
    bench.end(other)
    await bench.turn()
    bench.end(key)
    await bench.write()
    assert bench.reported == [other]
    await bench.turn()
    await bench.write()
    assert bench.reported == [other, key]


async def test_a_disk_that_refuses_for_long_holds_no_outcome_for_ever() -> None:
    bench, key = Bench(), KEYS[0]
    bench.line(key)
    bench.end(key)
    await bench.turn()
    await bench.write(refused())
    assert bench.reported == []
    await bench.clock.advance(OUTCOME_TIMEOUT_SECONDS)
    await bench.turn()
    await bench.write(refused())
    assert bench.reported == [key]
    await bench.turn()
    await bench.write()
    assert (bench.reported, bench.whole(key)) == ([key], True)


async def test_a_disk_that_hangs_holds_no_outcome_for_ever_and_is_asked_once() -> None:
    bench, key, other = Bench(), *KEYS[:2]
    bench.line(key)
    bench.end(key)
    await bench.turn()
    await bench.clock.advance(OUTCOME_TIMEOUT_SECONDS - 0.1)
    assert bench.reported == []
    bench.line(other)
    bench.end(other)
    await bench.clock.advance(CHECK_SECONDS)
    assert (bench.reported, bench.disk.kept) == ([key], [key])
    await bench.clock.advance(OUTCOME_TIMEOUT_SECONDS)
    assert (bench.reported, bench.disk.begun) == ([key, other], 1)
    await bench.write()
    await bench.turn()
    await bench.write()
    assert bench.whole(key) and bench.whole(other), "each line once"
    assert (bench.reported, bench.it.pending) == ([key, other], False)


async def test_the_end_does_not_wait_for_a_disk_that_hangs() -> None:
    bench, key = Bench(), KEYS[0]
    bench.line(key)
    bench.end(key)
    await bench.stop_turn()
    assert bench.disk.begun == 1
    finish = asyncio.ensure_future(bench.it.finish())
    await bench.clock.advance(OUTCOME_TIMEOUT_SECONDS)
    assert (finish.done(), bench.reported, bench.disk.begun) == (True, [key], 1)


async def test_the_end_goes_on_with_the_write_of_the_turn_that_was_cut_short() -> None:
    bench, key, other = Bench(), *KEYS[:2]
    bench.line(key)
    await bench.stop_turn()
    bench.line(other)
    finish = asyncio.ensure_future(bench.it.finish())
    for _ in range(2):
        await settle()
        await bench.write()
    await finish
    assert (bench.disk.lines, bench.it.pending) == ({key: 1, other: 1}, False)


async def test_at_the_end_the_offsets_of_silent_guards_are_on_disk() -> None:
    """Otherwise the guard leaves a spool file, and the next executor repeats reports that were answered."""
    bench = Bench()
    await bench.turn()
    await bench.write()
    bench.offsets = {"i.0": 7}
    finish = asyncio.ensure_future(bench.it.finish())
    await settle()
    await bench.write()
    await finish
    assert bench.disk.offsets == {"i.0": 7}
    assert bench.offsets == {}, "the guards can drop their messages"


async def test_a_full_disk_is_no_error_of_an_idle_executor(caplog: pytest.LogCaptureFixture) -> None:
    bench, asked = Bench(), 0
    bench.offsets = {"i.0": 7}
    for _ in range(10):
        await bench.turn()
        asked += bool(bench.disk.storing and bench.disk.storing.ack_offsets)
        await bench.write(refused() if bench.disk.storing and bench.disk.storing.ack_offsets else None)
        assert bench.failure() is None
        await bench.clock.advance(1.0)
    assert (asked, caplog.text.count("cannot persist guard acknowledgement offsets")) == (1, 1)
    await bench.clock.advance(OFFSETS_RETRY_SECONDS)
    await bench.turn()
    await bench.write()
    assert (bench.disk.offsets, bench.offsets) == ({"i.0": 7}, {})


async def test_at_the_end_nothing_is_kept_back() -> None:
    bench, key = Bench(), KEYS[0]
    bench.line(key)
    bench.end(key)
    finish = asyncio.ensure_future(bench.it.finish())
    await settle()
    await bench.write(refused())
    await finish
    assert (bench.reported, bench.disk.kept) == ([key], [key])


STEP = st.one_of(
    st.tuples(st.sampled_from(["line", "line", "end"]), st.sampled_from(KEYS)),
    st.tuples(st.sampled_from(["turn", "write", "refuse", "nap", "stop"]), st.none()),
)


@given(st.lists(STEP, max_size=40), st.booleans())
def test_in_any_order_of_events_a_reported_attempt_is_whole_on_disk(
    steps: list[tuple[str, AttemptKey | None]], hangs: bool
) -> None:
    asyncio.run(follow(steps, hangs))


async def follow(steps: Sequence[tuple[str, Any]], hangs: bool) -> None:
    bench, ended = Bench(), set()
    doing: dict[str, Callable[[], Any]] = {
        "turn": bench.turn,
        "write": bench.write,
        "refuse": lambda: bench.write(refused()),
        "stop": bench.cut_turn,
        # Shorter than the timeout, also all of them together.
        "nap": lambda: bench.clock.advance(OUTCOME_TIMEOUT_SECONDS / 50),
    }
    for kind, key in [*steps, *(("end", key) for key in KEYS)]:
        if kind in doing:
            await doing[kind]()
        elif key not in ended and kind == "line":
            bench.line(key)
        elif key not in ended:
            ended.add(key)
            bench.end(key)
        assert all(bench.whole(key) and key in bench.disk.kept for key in bench.reported)
    if hangs:
        # No write ends any more: the outcomes do not wait for that.
        for _ in range(2):
            # The first may get the result of a write whose turn was stopped.
            await bench.turn()
            await bench.clock.advance(OUTCOME_TIMEOUT_SECONDS + CHECK_SECONDS)
        assert sorted(bench.reported) == sorted(KEYS)
    while bench.it.pending:
        await bench.turn()
        await bench.clock.advance(1.0)
        await bench.write()
    assert sorted(set(bench.disk.kept)) == sorted(KEYS)
    assert hangs or len(bench.disk.kept) == len(KEYS)
    assert sorted(bench.reported) == sorted(KEYS)


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


def collector(journal: Journal, held: list[bool], limit: int = 1 << 30) -> LogCollector:
    guards: Any = SimpleNamespace(hold_output=held.append, ack_offsets=dict, ack=lambda _offsets: None)
    return LogCollector(
        journal=journal,
        guards=guards,
        pack=Packer(),
        clock=InstantClock(),
        max_journal_bytes=limit,
        wake=lambda: None,
        wake_shipper=lambda: None,
        report=lambda _report: None,
    )


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
    assert (it.pending, it._buffer._tickets) == (False, {})


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
