"""An attempt whose end is known has its whole log, whatever the executor dies of, and when."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_executor.decide.log_block import LogBlock
from toban_executor.decide.models import Report
from toban_executor.decide.pending_outcomes import PATIENCE_SECONDS
from toban_executor.loops.log_collector import GATHER_SECONDS, LOOK_SECONDS, MARKS_AGAIN_SECONDS, Collector
from toban_executor.ports import Taken
from toban_proto.v1 import common_pb2
from toban_testing.clock import FakeClock
from toban_testing.fake_coordinator import EPOCH

# Those of stepping_executor, in order.
STEPS = ("told", "writing", "written", "reporting", "answered")
SUCCEEDED = common_pb2.OUTCOME_KIND_SUCCEEDED
KEYS = [AttemptKey(number, 100 + number) for number in range(3)]


def refused() -> TobanError:
    return TobanError(ErrorCode.UNAVAILABLE, "no space left")


class Disk:
    """A journal whose every write waits until the test says how it ends, also when nobody waits for it any more."""

    def __init__(self) -> None:
        self.lines: dict[AttemptKey, int] = {}
        self.sealed: dict[AttemptKey, int] = {}
        self.kept: list[AttemptKey] = []
        self.heard: dict[str, int] = {}
        self.begun = 0
        self.taking: Taken | None = None
        self.under_way: asyncio.Future[None] | None = None

    async def take(self, taken: Taken) -> int:
        assert self.under_way is None, "one write at a time"
        self.begun += 1
        self.taking = taken
        self.under_way = asyncio.get_running_loop().create_future()
        await self.under_way
        for chunk in taken.chunks:
            assert self.lines.get(chunk.key, 0) + 1 == chunk.seq_from
            self.lines[chunk.key] = chunk.seq_to
        self.sealed.update({seal.key: seal.last_seq for seal in taken.seals})
        self.kept += [report.key for report in taken.reports]
        self.heard.update(taken.heard)
        return 0

    def put_report(self, report: Report) -> None:
        self.kept.append(report.key)


class Bench:
    """A collector whose turns follow each other as those of its loop do."""

    def __init__(self) -> None:
        self.disk, self.clock, self.reported = Disk(), FakeClock(), []
        self.it = Collector(
            journal=self.disk,  # type: ignore[arg-type]
            pack=lambda _blocks: b"",
            hold=lambda _on: None,
            clock=self.clock,
            max_journal_bytes=1 << 30,
        )
        self.reported: list[AttemptKey] = []
        self.it.on_report = lambda report: self.reported.append(report.key)
        self.marks: dict[str, int] = {}
        self.it.heard, self.it.on_kept = lambda: dict(self.marks), self.forget
        self.written: dict[AttemptKey, int] = {}
        self._turn: asyncio.Task[int] | None = None

    def line(self, key: AttemptKey) -> None:
        if key not in self.written:
            self.it.opened(key, b"t")
        self.written[key] = number = self.written.get(key, 0) + 1
        self.it.add(key, LogBlock(1, False, number, number, 1, b"x\n"))

    def end(self, key: AttemptKey) -> None:
        self.it.closed(key, self.written.get(key, 0))
        self.it.conclude(Report(key=key, seq=2))

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

    def forget(self, marks: Mapping[str, int]) -> None:
        """Up to these it is on disk."""
        self.marks = {name: mark for name, mark in self.marks.items() if marks.get(name, 0) < mark}

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
    await bench.clock.advance(PATIENCE_SECONDS)
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
    await bench.clock.advance(PATIENCE_SECONDS - 0.1)
    assert bench.reported == []
    bench.line(other)
    bench.end(other)
    await bench.clock.advance(LOOK_SECONDS)
    assert (bench.reported, bench.disk.kept) == ([key], [key])
    await bench.clock.advance(PATIENCE_SECONDS)
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
    await bench.clock.advance(PATIENCE_SECONDS)
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


async def test_at_the_end_it_is_on_disk_how_far_silent_guards_were_heard() -> None:
    """Else the guard leaves a file, and the next executor reports once more what was answered already."""
    bench = Bench()
    await bench.turn()
    await bench.write()
    bench.marks = {"i.0": 7}
    finish = asyncio.ensure_future(bench.it.finish())
    await settle()
    await bench.write()
    await finish
    assert bench.disk.heard == {"i.0": 7}
    assert bench.marks == {}, "the guards can be told"


async def test_a_full_disk_is_no_error_of_an_idle_executor(caplog: pytest.LogCaptureFixture) -> None:
    bench, asked = Bench(), 0
    bench.marks = {"i.0": 7}
    for _ in range(10):
        await bench.turn()
        asked += bool(bench.disk.taking and bench.disk.taking.heard)
        await bench.write(refused() if bench.disk.taking and bench.disk.taking.heard else None)
        assert bench.failure() is None
        await bench.clock.advance(1.0)
    assert (asked, caplog.text.count("cannot persist guard acknowledgement offsets")) == (1, 1)
    await bench.clock.advance(MARKS_AGAIN_SECONDS)
    await bench.turn()
    await bench.write()
    assert (bench.disk.heard, bench.marks) == ({"i.0": 7}, {})


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
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
        # Shorter than the patience of all of them together.
        "nap": lambda: bench.clock.advance(PATIENCE_SECONDS / 50),
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
            # The first may hear how a write has ended that was under way when its turn was stopped.
            await bench.turn()
            await bench.clock.advance(PATIENCE_SECONDS + LOOK_SECONDS)
        assert sorted(bench.reported) == sorted(KEYS)
    while bench.it.pending:
        await bench.turn()
        await bench.clock.advance(1.0)
        await bench.write()
    assert sorted(set(bench.disk.kept)) == sorted(KEYS)
    assert hangs or len(bench.disk.kept) == len(KEYS)
    assert sorted(bench.reported) == sorted(KEYS)


@pytest.mark.parametrize("step", STEPS)
async def test_kill_9_between_the_end_of_a_job_and_the_answer_to_its_report(
    world_maker: Any, tmp_path: Path, step: str
) -> None:
    """Whatever the cluster has heard of before the executor died, its lines are not lost; and what came of it is whole in the end."""
    world = world_maker()
    world.module = "stepping_executor"
    try:
        kill_at = tmp_path / "kill-at"
        kill_at.write_text(step)
        await world.open(KILL_AT=str(kill_at), PYTHONPATH=path_with(Path(__file__).parent))
        # It may die before it answers.
        await asyncio.gather(world.start(world.order(1, "seq", "-f", "line %.0f", "500")), return_exceptions=True)
        await asyncio.to_thread(world.executor.process.wait, timeout=10)
        reported = (1, EPOCH | 1) in world.coordinator.outcomes
        assert reported == (step == "answered")
        world.executor.start()
        await world.granted(incarnations=2)
        outcome = await world.outcome(1)
        assert (outcome.kind, outcome.last_seq, outcome.last_line) == (SUCCEEDED, 500, "line 500")
        await world.until(lambda: (1, EPOCH | 1) in world.archiver.seals)
        assert world.archiver.text((1, EPOCH | 1)) == [b"line %d" % number for number in range(1, 501)]
        assert world.archiver.doubled == 0
    finally:
        await world.close()


def path_with(folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
