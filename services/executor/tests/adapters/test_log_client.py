"""Lines on their way while archivers are away and the executor dies."""

import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from toban_proto.v1 import executor_pb2


@pytest.fixture
def world(shared_world: Any) -> Any:
    return shared_world


def in_journal(world: Any) -> int:
    """Lines that are on disk."""
    connection = sqlite3.connect(Path(world.tmp) / "state" / "journal.sqlite3")
    try:
        return int(connection.execute("SELECT coalesce(sum(lines), 0) FROM chunks").fetchone()[0])
    finally:
        connection.close()


async def test_an_archiver_that_comes_and_goes_gets_every_line_once(world: Any) -> None:
    script = 'for i in $(seq 20); do seq -f "part $i line %.0f" 500; sleep 0.05; done'
    await world.start(world.order(1, "sh", "-c", script))
    for number in range(6):
        wanted = (number + 1) * 1000
        await world.until(lambda wanted=wanted: len(world.archiver.lines.get(world.key(1), ())) >= wanted, 20)
        world.archiver.down = True
        await world.until(lambda: in_journal(world) or world.key(1) in world.coordinator.outcomes)
        world.archiver.down = False
    await world.outcome(1)
    await world.until(lambda: world.archiver.seals, 20)
    expected = [b"part %d line %d" % (part, line) for part in range(1, 21) for line in range(1, 501)]
    assert world.archiver.text(world.key(1)) == expected


async def test_rules_of_the_order_reach_guard_and_outcome(world: Any) -> None:
    rules = executor_pb2.LogRules(max_bytes=1 << 20, max_lines_per_second=100, redact=["TOKEN"])
    await world.start(
        world.order(1, "sh", "-c", 'seq 5000; printf "it was $TOKEN"', env={"TOKEN": "hunter2"}, logs=rules)
    )
    assert (await world.outcome(1)).last_line == "it was ***"
    key = world.key(1)
    await world.until(lambda: key in world.archiver.seals)
    lines = sorted(world.archiver.lines[key].items())
    marker = next(text for _, (stream, text, _) in lines if stream == 3)
    assert marker == "… 3,801 lines, 18 KiB left out: more than 100 lines a second (max_lines_per_second)".encode()
    assert lines[-1] == (5001, (1, b"it was ***", True))
    assert len(lines) == 1000 + 1 + 200


async def test_no_journalled_line_is_lost_or_doubled_by_kill_9_without_archivers(own_world: Any) -> None:
    world = own_world
    world.archiver.down = True
    counts = {1: 20_000, 2: 30_000}
    orders = [
        world.order(run, "sh", "-c", f"seq -f 'run {run} line %.0f' {count}; exec sleep 60")
        for run, count in counts.items()
    ]
    done = world.order(3, "seq", "-f", "run 3 line %.0f", "5000")
    await world.start(*orders, done)
    await world.until(lambda: in_journal(world) == 55_000, 20)
    assert world.archiver.lines == {}
    os.kill(world.executor.pid, signal.SIGKILL)
    world.executor.stop()
    world.executor.start()
    await world.granted(incarnations=2)
    assert in_journal(world) == 55_000
    world.archiver.down = False
    counts[3] = 5000
    for run, count in counts.items():
        key = world.key(run)
        await world.until(lambda key=key, count=count: len(world.archiver.lines.get(key, ())) >= count, 20)
        assert world.archiver.text(key) == [b"run %d line %d" % (run, number) for number in range(1, count + 1)]
        assert list(world.archiver.lines[key]) == sorted(world.archiver.lines[key])
    await world.until(lambda: in_journal(world) == 0)
    assert world.archiver.seals == {world.key(run): count for run, count in counts.items()}
