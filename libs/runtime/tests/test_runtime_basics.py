"""Clock, ids, back-off, and the life of a process."""

import itertools
import json
import random
import signal
import subprocess
import sys
from datetime import UTC
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock, SystemClock
from toban_runtime.ids import IdSource, SeededIdSource
from toban_runtime.lifecycle import write_ready_file


async def test_the_system_clock_runs_forward() -> None:
    clock: Clock = SystemClock()
    before = clock.monotonic(), clock.boottime(), clock.wall()
    await clock.sleep(-1)
    await clock.sleep(0.001)
    assert clock.monotonic() > before[0] and clock.boottime() > before[1]
    assert clock.wall().tzinfo is UTC


def test_ids() -> None:
    ids = IdSource()
    assert ids.uuid() != ids.uuid()
    assert len(ids.token_hex(16)) == 32
    one, two = SeededIdSource(seed=1), SeededIdSource(seed=1)
    assert [one.uuid(), one.token_hex(4)] == [two.uuid(), two.token_hex(4)]
    assert SeededIdSource(seed=2).uuid() != SeededIdSource(seed=1).uuid()


@given(st.integers(0, 10**6), st.floats(0.001, 10), st.floats(0.001, 100), st.integers())
def test_backoff_grows_to_its_cap(attempt: int, base: float, cap: float, seed: int) -> None:
    backoff = Backoff(base=base, cap=cap, rng=random.Random(seed))
    assert 0 < backoff.delay(attempt) <= cap
    steady = Backoff(base=base, cap=cap, jitter=0.0)
    assert steady.delay(attempt) <= steady.delay(attempt + 1)


def test_backoff_doubles() -> None:
    backoff = Backoff(base=0.1, cap=1.0, jitter=0.0)
    assert [backoff.delay(n) for n in range(1, 6)] == [0.1, 0.2, 0.4, 0.8, 1.0]


def test_replicas_that_fail_at_one_instant_do_not_return_in_step() -> None:
    """After an outage a fleet would else register, and send its heartbeats, at the same instants."""
    delays = sorted(Backoff(base=0.2, cap=5.0, rng=random.Random(seed)).delay(9) for seed in range(200))
    assert delays[0] < 2.7 and delays[-1] > 4.8
    assert max(later - earlier for earlier, later in itertools.pairwise(delays)) < 0.25


def test_the_ready_file(tmp_path: Path) -> None:
    write_ready_file(None, grpc_port=1, admin_port=2)
    path = tmp_path / "ready.json"
    write_ready_file(path, grpc_port=1, admin_port=2)
    told = json.loads(path.read_text())
    assert (told["grpc_port"], told["admin_port"]) == (1, 2) and told["pid"] > 0
    assert list(tmp_path.iterdir()) == [path]


SERVICE = """
import asyncio, sys
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.config import ConfigError
from toban_runtime.lifecycle import run_service

async def main(stop):
    what = sys.argv[1]
    if what == "config":
        raise ConfigError("SCHEDULER_X: wrong\\nhere")
    if what == "toban":
        raise TobanError(ErrorCode.UNAVAILABLE, "no database")
    if what == "crash":
        raise RuntimeError("bug")
    sys.stderr.write("up\\n")
    sys.stderr.flush()
    await stop.wait()
    if what == "stuck":
        sys.stderr.write("stopping\\n")
        sys.stderr.flush()
        await asyncio.Event().wait()
    sys.stderr.write(stop.reason)

sys.exit(run_service(main))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_service_in_order(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", SERVICE, "serve"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "up\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, number.name)


def test_a_second_signal_ends_a_service_that_does_not_stop() -> None:
    with subprocess.Popen([sys.executable, "-c", SERVICE, "stuck"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.stderr.readline() == "stopping\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 70


@pytest.mark.parametrize(
    ("what", "code", "said"), [("config", 78, "SCHEDULER_X: wrong here\n"), ("toban", 69, "no database\n")]
)
def test_errors_of_ours_end_with_their_code_and_one_line(what: str, code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVICE, what], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.returncode, done.stderr) == (code, said)


def test_a_crash_is_logged_and_ends_with_70() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVICE, "crash"], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 70
    assert "service failed" in done.stderr and "RuntimeError: bug" in done.stderr


def test_a_service_may_open_as_many_files_as_the_machine_allows() -> None:
    """Started with a low soft limit, a few hundred silent connections would shut it."""
    code = (
        "import resource; from toban_runtime.lifecycle import run_service\n"
        "async def main(stop): print(*resource.getrlimit(resource.RLIMIT_NOFILE))\n"
        "run_service(main)"
    )
    command = ["prlimit", "--nofile=100:300", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["300", "300"]
