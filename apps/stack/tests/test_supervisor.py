"""The supervisor as a process, over small shell programs: restarts, waits, adoption, and what it leaves."""

import fcntl
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from toban_runtime.clock import SystemClock
from toban_stack import certs, processes
from toban_stack.errors import StackError, tail
from toban_stack.processes import ProcessRecord, Program
from toban_stack.stack_paths import StackPaths
from toban_stack.state_file import StateFile
from toban_stack.supervisor import children, report
from toban_stack.supervisor.client import SUPERVISOR, Supervision
from toban_stack.supervisor.policy import Backoff, Exit
from toban_stack.supervisor.report import ServiceReport
from toban_stack.wait import wait_until

# After the first restart, which is immediate, none comes within a test.
ONCE = Backoff(first_seconds=3600.0, longest_seconds=3600.0)
SLEEPS = "exec sleep 300"


class Box:
    """The folder of a stack, with programs instead of its servers and services."""

    def __init__(self, folder: Path, backoff: Backoff = ONCE) -> None:
        self.home = StackPaths(folder)
        self.home.create()
        self.records = StateFile(path=self.home.state_file)
        self.supervision = Supervision(
            home=self.home, records=self.records, environment=dict(os.environ), backoff=backoff
        )

    def launch(self, name: str, script: str) -> ProcessRecord:
        return self.supervision.launch(self.program(name, script))

    def program(self, name: str, script: str) -> Program:
        return Program(
            name=name,
            role="test",
            argv=("/bin/sh", "-c", script),
            environment={"PATH": os.environ["PATH"]},
            log=self.home.log_file(name),
        )

    def report(self, name: str) -> ServiceReport:
        return report.read(self.home.supervisor_report).get(name, ServiceReport(restarts=-1))

    def until(self, name: str, *, restarts: int, waiting: bool = False) -> ServiceReport:
        """The report, as soon as it has so many restarts and is waiting or not."""

        def there() -> bool:
            one = self.report(name)
            return one.restarts == restarts and bool(one.next_start_at) is waiting

        assert wait_until(there, 30), f"{self.report(name)}\n{self.log()}"
        return self.report(name)

    def log(self) -> str:
        return "\n".join(tail(self.home.log_file(SUPERVISOR), 100))

    def kill(self, name: str, signum: int = signal.SIGKILL) -> ProcessRecord:
        """Kills the process; returns its record once it has ended."""
        record = self.records.running(name)
        assert record is not None and processes.send(record, signum)
        assert wait_until(lambda: not processes.alive(record), 30)
        return record

    def close(self) -> list[ProcessRecord]:
        """Stops everything; returns the records of what ran."""
        records = [one for one in self.records.all() if processes.alive(one)]
        self.supervision.stop()
        for record in records:
            processes.stop(record)
        shutil.rmtree(self.home.sockets, ignore_errors=True)
        return records


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "home")
    yield box
    box.close()


def test_a_killed_process_starts_again_under_its_name(box: Box) -> None:
    first = box.launch("one", SLEEPS)
    assert box.report("one").restarts == 0 and box.report("one").last_exit is None
    box.kill("one")
    last = box.until("one", restarts=1).last_exit
    assert last is not None and last.signal == signal.SIGKILL and last.at
    again = box.records.running("one")
    assert again is not None and again.pid != first.pid and again.log == first.log
    assert "one ended, killed by SIGKILL after" in box.log() and f"one started, pid {again.pid}, restart 1" in box.log()


def test_what_ends_at_once_waits_and_shows_why(box: Box, tmp_path: Path) -> None:
    script = f"test -e {tmp_path}/good && {SLEEPS}; echo; printf 'bad \\033[31mconfiguration\\n\\n' >&2; exit 78"
    box.launch("one", script)
    one = box.until("one", restarts=1, waiting=True)
    assert one.failures == 2 and one.last_exit is not None
    assert one.last_exit.code == 78 and one.last_exit.detail == "bad  [31mconfiguration"
    assert "(bad  [31mconfiguration); next start in 3600 s, failures in a row: 2" in box.log()

    (tmp_path / "good").touch()
    record = box.launch("one", script)
    assert processes.alive(record), "a launch does not wait for the backoff"
    assert box.report("one").restarts == 2 and not box.report("one").next_start_at


def test_the_wait_ends_by_itself(tmp_path: Path) -> None:
    box = Box(tmp_path / "home", Backoff(first_seconds=0.01, longest_seconds=0.02))
    try:
        box.launch("one", f"echo x >> {tmp_path}/starts; test $(wc -l < {tmp_path}/starts) -lt 8 || {SLEEPS}")
        assert wait_until(lambda: box.report("one").restarts == 7, 30), box.log()
        one = box.until("one", restarts=7)
        assert one.last_exit is not None and one.last_exit.code == 0, "an end without an error is an end too"
    finally:
        box.close()


def test_a_program_that_cannot_be_executed_is_tried_again(box: Box, tmp_path: Path) -> None:
    program = tmp_path / "program"
    one = Program(name="one", role="test", argv=(str(program),), log=box.home.log_file("one"))
    box.supervision.launch(one)
    waiting = box.until("one", restarts=1, waiting=True)
    assert waiting.last_exit is not None and waiting.last_exit.code == children.EXIT_NOT_STARTED
    assert waiting.last_exit.detail.startswith(f"{program} cannot be executed: ")


def test_a_log_that_cannot_be_opened_is_an_error_of_the_launch(box: Box) -> None:
    box.home.log_file("one").mkdir()
    with pytest.raises(StackError, match=r"one could not be started: .*Is a directory"):
        box.launch("one", SLEEPS)
    waiting = box.until("one", restarts=0, waiting=True)
    assert str(waiting.last_exit) == "could not be started"


def test_a_killed_supervisor_leaves_the_processes_and_the_next_one_adopts_them(box: Box) -> None:
    first, other = box.launch("one", SLEEPS), box.launch("two", SLEEPS)
    box.kill("one")
    box.until("one", restarts=1)
    second = box.records.running("one")
    box.kill(SUPERVISOR)
    assert second is not None and processes.alive(second) and processes.alive(other)
    assert box.supervision.running() is None

    assert box.launch("one", SLEEPS) == second and box.launch("two", SLEEPS) == other
    assert box.report("one").restarts == 1, "the number of restarts is kept"
    box.kill("one")
    last = box.until("one", restarts=2).last_exit
    assert last is not None and (last.code, last.signal) == (None, None), "only a parent learns the exit code"
    third = box.records.running("one")
    assert third is not None and third.pid not in (first.pid, second.pid)

    left = box.close()
    assert {one.name for one in left} == {SUPERVISOR, "one", "two"}
    assert not [one for one in left if processes.alive(one)]


def test_a_process_whose_supervisor_stops_runs_on(box: Box) -> None:
    record = box.launch("one", SLEEPS)
    assert box.supervision.stop() == ["supervisor stopped"]
    assert processes.alive(record) and "continue to run" in box.log()
    assert box.supervision.stop() == []


def test_a_released_process_is_not_restarted(box: Box) -> None:
    box.launch("one", SLEEPS)
    box.launch("two", SLEEPS)
    box.supervision.release(["one", "unknown"])
    released = box.kill("one")
    box.kill("two")
    box.until("two", restarts=1)
    assert box.report("one").restarts == -1 and "one started, pid" in box.log() and "one ended" not in box.log()
    assert wait_until(lambda: not Path(f"/proc/{released.pid}").exists(), 30), "it is reaped"


def test_no_restart_while_a_launcher_is_at_work(box: Box) -> None:
    box.launch("one", SLEEPS)
    with (box.home.root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        box.kill("one")
        waiting = box.until("one", restarts=0, waiting=True)
        assert waiting.failures == 1
        box.launch("two", SLEEPS)  # It serves requests meanwhile.
        assert box.report("one").restarts == 0
    box.until("one", restarts=1)


def test_certificates_near_their_end_are_renewed_before_a_restart(box: Box) -> None:
    certs.make_all(box.home.tls, now=SystemClock().wall() - timedelta(days=31))
    expired = (box.home.tls / "executor" / "tls.crt").read_bytes()
    box.launch("one", f"cp {box.home.tls}/executor/tls.crt {box.home.root}/found; {SLEEPS}")
    assert wait_until(lambda: "certificates renewed: coordinator, executor" in box.log(), 30), box.log()
    assert (box.home.tls / "executor" / "tls.crt").read_bytes() != expired
    box.kill("one")
    box.until("one", restarts=1)
    renewed = (box.home.tls / "executor" / "tls.crt").read_bytes()
    assert wait_until(lambda: (box.home.root / "found").read_bytes() == renewed, 30)


def test_no_renewal_while_a_launcher_is_at_work(box: Box) -> None:
    certs.make_all(box.home.tls, now=SystemClock().wall() - timedelta(days=31))
    before = (box.home.tls / "executor" / "tls.crt").read_bytes()
    with (box.home.root / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        box.launch("one", SLEEPS)
        assert (box.home.tls / "executor" / "tls.crt").read_bytes() == before
    assert wait_until(lambda: "certificates renewed" in box.log(), 30), box.log()


def test_the_removed_folder_of_a_stack_ends_its_supervisor(box: Box) -> None:
    record = box.launch("one", SLEEPS)
    supervisor = box.supervision.running()
    assert supervisor is not None
    box.home.root.rename(box.home.root.with_name("moved"))
    assert processes.send(record, signal.SIGKILL)
    assert wait_until(lambda: not processes.alive(supervisor), 30)


def test_a_request_that_is_no_request_is_refused(box: Box) -> None:
    box.launch("one", SLEEPS)
    for raw, answer in ((b"{}\n", b'{"error": "\'command\'"}\n'), (b"nonsense\n", b"")):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(box.home.supervisor_socket))
            connection.sendall(raw)
            assert connection.makefile("rb").readline() == answer
    assert box.launch("one", SLEEPS) == box.records.running("one")


# Python 3.12 and newer warn of a fork beside threads, which other tests of this process may have.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_nothing_is_executed_before_its_record_is_stored(box: Box, tmp_path: Path) -> None:
    stored: list[ProcessRecord] = []

    def fails(record: ProcessRecord) -> None:
        stored.append(record)
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        children.start(box.program("one", f"touch {tmp_path}/executed"), fails)
    assert not Path(f"/proc/{stored[0].pid}").exists(), "it has ended and was reaped"
    assert not (tmp_path / "executed").exists()

    process = children.start(box.program("one", f"touch {tmp_path}/executed"), stored.append)
    assert select.select([process], [], [], 30)[0]
    assert process.poll() == Exit(code=0) and (tmp_path / "executed").exists()
    process.close()


KILLED_WHILE_IT_STORES = """
import os, pathlib, signal, sys
from toban_stack.processes import Program
from toban_stack.supervisor import children
def store(record):
    pathlib.Path(sys.argv[1], "pid").write_text(f"{record.pid}\\n{record.started}")
    os.kill(os.getpid(), signal.SIGKILL)
log = pathlib.Path(sys.argv[1], "log")
children.start(Program(name="one", role="test", argv=("/bin/sh", "-c", f"touch {sys.argv[1]}/executed"), log=log), store)
"""


def test_a_supervisor_killed_between_fork_and_record_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_WHILE_IT_STORES, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    pid, started = (int(line) for line in (tmp_path / "pid").read_text().splitlines())
    assert wait_until(lambda: processes.start_time(pid) != started, 30)
    assert not (tmp_path / "executed").exists()
