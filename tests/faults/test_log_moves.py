"""10,000 runs whose lines are computable, through kills of executors, log-archivers, PostgreSQL and S3, while their output moves into the archive:
each acknowledged line is read back exactly once, before, while and after it moves, and none that was not printed (I11).

Usage: LOG_MOVES_SEED=7 LOG_MOVES_RUNS=10000 python -m pytest tests/faults/test_log_moves.py -s
"""

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import TobanError
from toban_runtime.clock import SystemClock
from toban_stack import services
from toban_stack.stack import Stack
from toban_stack.wait import wait_until
from toban_testing.admin_client import AdminClient
from toban_testing.admin_port import metrics_of
from toban_testing.deterministic_log_jobs import (
    AcknowledgedFile,
    ReadAttempt,
    check_run,
    is_whole,
    lines_of,
    printing_job,
)
from toban_testing.faults import KINDS, Faults, sql_with_retries
from toban_testing.log_readers import LogReaders
from toban_testing.stack_fixtures import admin_of, running_stack, sql
from toban_testing.threads import Background
from toban_testing.time_shift import move_on, move_ten_days_on

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
RUNS = int(os.environ.get("LOG_MOVES_RUNS", "10000"))
BATCH = 250
# Each round has every kind of fault once; runs are begun as faults go on, so that the last ones meet them too.
ROUNDS = 4
READERS = 3
CLOCK = SystemClock()


def say(*words: object) -> None:
    """Figures of a run; `pytest -s` shows them while it goes on."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def toban(stack: Stack, *arguments: str) -> tuple[str, str]:
    """What the command says; one that fails is tried again for a while, since faults may be under way."""
    environment = {**os.environ, "TOBAN_HOME": str(stack.home.root)}
    argv = [sys.executable, "-m", "toban_cli", *arguments]
    done: list[subprocess.CompletedProcess[str]] = []

    def succeeds() -> bool:
        done.append(subprocess.run(argv, capture_output=True, text=True, env=environment, check=False))
        return done[-1].returncode == 0

    assert wait_until(succeeds, 30, 0.2), done[-1].stderr
    return done[-1].stdout, done[-1].stderr


@pytest.fixture(scope="module")
def acknowledged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that executors write down acknowledgements in."""
    return tmp_path_factory.mktemp("acknowledged") / "chunks"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, acknowledged: Path) -> Iterator[Stack]:
    """Two executors that write acknowledgements down, two log-archivers that live ten days later; nothing is due for the archive yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        patch.setenv("ACKNOWLEDGED", str(acknowledged))
        patch.setitem(services.MODULES, "executor", "tapped_executor")
        with running_stack(tmp_path_factory.mktemp("log-moves"), log_archivers=2) as one:
            toban(one, "settings", "set", "log_retention_days_db", "3650")
            toban(one, "settings", "set", "seal_after_seconds", "60")
            move_ten_days_on(one)
            yield one


@pytest.fixture
def admin(stack: Stack) -> Iterator[AdminClient]:
    with admin_of(stack) as one:
        yield one


def readers_of(stack: Stack) -> LogReaders:
    return LogReaders(stack.log_archivers, stack.home.tls / "admin-cli")


@pytest.fixture
def background() -> Iterator[Background]:
    one = Background()
    yield one
    one.stop()


class Move:
    """What the threads of the test do to one stack, and what they count."""

    def __init__(self, stack: Stack, file: Path, seed: int) -> None:
        self.stack = stack
        self.file = file
        self.seed = seed
        self.reads = 0
        self.reads_before = 0
        self.broken = 0
        self.passes = 0
        self.objects = 0
        self.archive_problems: set[str] = set()
        self._begun = CLOCK.monotonic()
        self._lock = threading.Lock()

    @property
    def seconds(self) -> int:
        """Since it began."""
        return round(CLOCK.monotonic() - self._begun)

    def read_on(self, number: int, stopping: threading.Event) -> None:
        """Reads runs of which something is acknowledged, in a random order, and checks each of them."""
        chosen = random.Random(self.seed * 1000 + number)
        file = AcknowledgedFile(self.file)
        with readers_of(self.stack) as readers:
            while not stopping.is_set():
                file.read()
                if not file.by_run:
                    stopping.wait(0.1)
                    continue
                run_id = chosen.choice(list(file.by_run))
                known = set(file.by_run[run_id])
                check_run(run_id, readers.read(run_id), known)
                with self._lock:
                    self.reads += 1
            with self._lock:
                self.broken += readers.broken

    def archive_on(self, stopping: threading.Event) -> None:
        """One pass of the archive after the other, at any log-archiver."""
        with readers_of(self.stack) as readers:
            while not stopping.wait(0.5):
                try:
                    did = readers.archive()
                except TobanError:
                    continue
                self.passes += 1
                self.objects += sum(one.action == "archived" for one in did)
                self.archive_problems |= {one.message for one in did if one.action == "failed"}

    def read_all(self, ids: list[int], acknowledged: AcknowledgedFile) -> dict[int, dict[int, Any]]:
        """Reads and checks every run; what was read, by run and token."""

        def part(mine: list[int]) -> dict[int, dict[int, Any]]:
            with readers_of(self.stack) as readers:
                found = {}
                for run_id in mine:
                    found[run_id] = readers.read(run_id)
                    check_run(run_id, found[run_id], acknowledged.by_run.get(run_id, ()))
                return found

        with ThreadPoolExecutor(READERS) as pool:
            parts = list(pool.map(part, [ids[at::READERS] for at in range(READERS)]))
        return {run_id: read for found in parts for run_id, read in found.items()}


def start_runs(admin: AdminClient, faults: Faults, ids: list[int], count: int) -> None:
    """Starts runs until there are `count`; a call whose answer was lost may have made runs besides, which run too."""
    while len(ids) < count:
        few = partial(lambda begun: begun < RUNS * (faults.part + 0.05) or faults.failed, len(ids))
        admin.until(few, seconds=120, of="the next fault")
        size = min(BATCH, count - len(ids))
        ids.extend(admin.until(partial(admin.start, "print", count=size), seconds=60, of="runs are taken"))


def journals_empty(stack: Stack) -> bool:
    """Every executor has had everything acknowledged."""
    executors = [name for name, record in stack.processes().items() if record.role == "executor"]
    return all("toban_executor_log_bytes 0.0" in metrics_of(stack, name) for name in executors)


def chunks_in_database(stack: Stack) -> int:
    return int(sql(stack, "SELECT count(*) AS n FROM logs.chunks")[0]["n"])


def archive_rest(stack: Stack, seconds: float) -> None:
    """Passes until nothing is left in the database: attempts whose guards were killed as well never tell their last lines, which are waited for."""
    sql(stack, "UPDATE scheduler.executors SET off_at = off_at - interval '5 minutes' WHERE off_at IS NOT NULL")
    move_on(stack, minutes=5)
    with readers_of(stack) as readers:

        def gone() -> bool:
            try:
                readers.archive()
            except TobanError:
                return False
            return chunks_in_database(stack) == 0

        assert wait_until(gone, seconds, 0.5), f"{chunks_in_database(stack)} chunks are left in the database"


def check_attempts(stack: Stack, read: dict[int, dict[int, Any]]) -> tuple[int, int]:
    """Every attempt whose outcome is known is whole, whether its executor was killed or not; how many attempts there were, and how many were cut
    short by a kill."""
    rows = sql(stack, "SELECT run_id, token, state, last_seq FROM scheduler.job_attempts")
    cut = 0
    known = {(row["run_id"], row["token"]) for row in rows}
    for run_id, attempts in read.items():
        assert {(run_id, token) for token in attempts} <= known, (
            f"run {run_id} has lines of an attempt that nobody began"
        )
    for row in rows:
        run_id, token = row["run_id"], row["token"]
        if run_id not in read:
            continue
        attempt = read[run_id].get(token)
        whole = attempt is not None and is_whole(run_id, token, attempt)
        cut += not whole
        told = attempt.last_seq if attempt else 0
        assert whole or row["state"] != "SUCCEEDED", f"{row}: {told} lines of {len(lines_of(run_id, token))}"
        assert row["last_seq"] is None or row["last_seq"] == told, f"{row}: its last line is {told}"
    return len(rows), cut


def load_and_break(move: Move, admin: AdminClient, background: Background) -> Faults:
    """Every run, through every fault; the first quarter is in the database alone, from then on it moves."""
    faults = Faults(move.stack, seed=move.seed, rounds=ROUNDS)
    ids: list[int] = []
    for number in range(READERS - 1):
        background.start(partial(move.read_on, number, background.stopping))
    faults.start()
    try:
        start_runs(admin, faults, ids, RUNS // 4)
        move.reads_before = move.reads
        assert not sql_with_retries(move.stack, "SELECT 1 FROM logs.objects")
        toban(move.stack, "settings", "set", "log_retention_days_db", "1")
        background.start(partial(move.archive_on, background.stopping))
        start_runs(admin, faults, ids, RUNS)
        faults.wait(seconds=180)
    finally:
        faults.stop()
    say(f"{len(ids)} runs begun, {move.seconds} s; {dict(faults.done)}")
    admin.until(lambda: not (c := admin.cluster()).pending and not c.running, seconds=180, of="every run ended")
    admin.until(lambda: journals_empty(move.stack), seconds=60, of="every line is acknowledged")
    say(f"all ended, {move.seconds} s; {move.objects} objects in {move.passes} passes, {move.reads} reads")
    return faults


def read_everything(move: Move, faults: Faults) -> dict[str, Any]:
    """Every run from the archive; figures."""
    rows = sql(move.stack, "SELECT id, state FROM scheduler.job_runs WHERE job_name = 'print' ORDER BY id")
    assert {row["state"] for row in rows} == {"SUCCEEDED"}
    everything = AcknowledgedFile(move.file)
    everything.read()
    read = move.read_all([row["id"] for row in rows], everything)
    attempts, cut = check_attempts(move.stack, read)
    return {
        "seed": move.seed,
        "runs": len(rows),
        "attempts": attempts,
        "attempts_cut_by_a_kill": cut,
        "acknowledged_lines": sum(one.lines for told in everything.by_run.values() for one in told),
        "lines_read": sum(len(one.lines) for found in read.values() for one in found.values()),
        "kills": dict(faults.done),
        "objects": sql(move.stack, "SELECT count(*) AS n FROM logs.objects WHERE state = 'verified'")[0]["n"],
        "passes": move.passes,
        "reads_before_and_while": [move.reads_before, move.reads - move.reads_before],
        "reads_asked_again": move.broken,
        "seconds": move.seconds,
    }


def test_each_acknowledged_line_is_read_once(
    stack: Stack, admin: AdminClient, acknowledged: Path, background: Background
) -> None:
    seed = int(os.environ.get("LOG_MOVES_SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)
    say("seed", seed)
    move = Move(stack, acknowledged, seed)
    admin.apply(printing_job("print", max_lost=50))
    faults = load_and_break(move, admin, background)
    archive_rest(stack, 120)
    background.stop()
    background.check()
    say(f"all in the archive, {move.seconds} s")
    figures = read_everything(move, faults)
    say(json.dumps(figures))
    assert not move.archive_problems
    assert faults.done == dict.fromkeys(KINDS, ROUNDS)
    assert figures["runs"] >= RUNS
    with readers_of(stack) as readers:
        assert [one.problem for one in readers.verify() if not one.ok] == []


def shown(lines: list[tuple[int, bytes]]) -> tuple[str, str]:
    """What the command writes to stdout and stderr for these lines."""
    out, err = ("".join(text.decode() + "\n" for stream, text in lines if stream == wanted) for wanted in (1, 2))
    return out, err


def test_the_command_line_reads_an_archived_run(stack: Stack, admin: AdminClient) -> None:
    """Every kind of `toban run logs` says the same of a run in the database and in the archive, and from where it reads."""
    toban(stack, "settings", "set", "log_retention_days_db", "3650")
    admin.apply(printing_job("show"))
    [run_id] = admin.start("show")
    token, number = admin.until_ended(run_id).token, str(run_id)
    with readers_of(stack) as readers:
        admin.until(
            lambda: is_whole(run_id, token, readers.read(run_id).get(token, ReadAttempt())),
            seconds=15,
            of="every line is there",
        )
        read = readers.read(run_id)
    check_run(run_id, read, ())
    # In the order in which they were read from the two pipes.
    lines = [(stream, text) for stream, _, text in read[token].lines]
    third = lines[2][1].decode().split()[3]
    every = shown(lines)
    kinds: dict[tuple[str, ...], tuple[str, str]] = {
        (): every,
        ("--follow",): every,
        ("--tail", "3"): shown(lines[-3:]),
        ("--head", "3"): shown(lines[:3]),
        ("--since", "1h"): every,
        ("--since", "1h", "--until", "59m"): ("", f"run {run_id} has written nothing of this kind\n"),
        ("--stdout",): (every[0], ""),
        ("--grep", third): shown([lines[2]]),
        ("--grep", f" {third} 0+$", "--regex"): shown([lines[2]]),
        ("--raw",): every,
    }

    def show(*arguments: str) -> tuple[str, str]:
        out, err = toban(stack, "run", "logs", number, *arguments)
        return out, "".join(
            line for line in err.splitlines(keepends=True) if not line.startswith(f"run {run_id} SUCCEEDED")
        )

    with_stderr = show("--stderr")
    assert with_stderr[1] in (every[1], f"run {run_id} has written nothing of this kind\n")
    for arguments, wanted in kinds.items():
        assert show(*arguments) == wanted, arguments
    assert show("--verbose") == (every[0], f"run {run_id}, from the database\n{every[1]}")

    toban(stack, "settings", "set", "log_retention_days_db", "1")
    with readers_of(stack) as readers:

        def archived() -> bool:
            with suppress(TobanError):
                readers.archive()
            return all(place.startswith("s3://") for place in readers.places(run_id))

        assert wait_until(archived, 30, 0.2)
        [place] = readers.places(run_id)
    assert show("--stderr") == with_stderr
    for arguments, wanted in kinds.items():
        assert show(*arguments) == wanted, arguments
    assert show("--verbose") == (every[0], f"run {run_id}, from the archive ({place})\n{every[1]}")
    assert show("--follow", "--verbose") == (every[0], f"run {run_id}, from the archive ({place})\n{every[1]}")
