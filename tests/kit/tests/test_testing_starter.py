"""What a test session or a bench has started ends when it is killed: servers, a browser, an executor, other processes, whole stacks."""

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from toban_stack import processes
from toban_stack.stack_paths import StackPaths
from toban_stack.wait import wait_until
from toban_testing.browser import find_browser
from toban_testing.starter import Leftovers

# A safety net: the end of a starter is noticed at once.
SECONDS = 60.0
BENCH = Path(__file__).resolve().parents[3] / "tests" / "bench"
# Its options switch off plugins that other packages bring.
SETTINGS = Path(__file__).resolve().parents[3] / "pyproject.toml"
# One test with all kinds, since the start of a session takes longest. `named` has nothing of the session but its folder's name.
SESSION = """
    import os, signal, subprocess, sys
    from contextlib import ExitStack
    from toban_stack.wait import wait_until
    from toban_testing.browser import browsing, find_browser
    from toban_testing.executor_process import ExecutorProcess
    from toban_testing.redis_nodes import Node

    def test_all_kinds(servers, default_pg_major, tls, tmp_path):
        executor = ExecutorProcess(tls=tls, state=tmp_path / "state", coordinators="127.0.0.1:1")
        executor.start()
        servers.postgres(default_pg_major), servers.redis_url(), servers.s3()
        Node(tmp_path / "node", [])
        subprocess.Popen(["sh", "-c", "sleep 600 & sleep 601"], start_new_session=True)
        lives = "import time; print('named', flush=True); time.sleep(602)"
        named = subprocess.Popen([sys.executable, "-c", lives, tmp_path], stdout=subprocess.PIPE, env={})
        named.stdout.readline()
        with ExitStack() as context:
            if find_browser():
                context.enter_context(browsing(tmp_path / "profile"))()
            assert wait_until(executor.ready.exists, 60)
            os.write(REPORT, f"runs {servers._root}\\n".encode())
            signal.pause()
"""
KINDS = (
    "postgres",
    "-server 127.0.0.1:",
    "weed",
    "toban_executor.guard",
    "redis.conf",
    "sleep 600",
    "sleep 601",
    "named",
)
CHILD = """
    import signal, sys
    from subprocess import Popen
    from toban_testing.starter import end_with_parent

    if sys.argv[1:]:
        end_with_parent()
        os.write(REPORT, b"runs child\\n")
    else:
        Popen([sys.executable, __file__, "child"], start_new_session=True)
    signal.pause()
"""
JOB = """
    import os, signal
    from pathlib import Path
    from toban_stack.wait import wait_until

    def run_job(admin, home):
        argv = ["sh", "-c", f"touch {home}/job-runs; sleep 603 & sleep 604"]
        spec = {"steps": [{"argv": argv}], "allow_shell": True}
        admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "long"}, "spec": spec})
        admin.start("long")
        assert wait_until((Path(home) / "job-runs").exists, 60)
        os.write(REPORT, f"runs {home}\\n".encode())
        signal.pause()
"""
STACK = """
    from toban_stack.supervisor.policy import Backoff
    from toban_testing.stack_fixtures import admin_of, running_stack

    home = Path("home").absolute()
    with running_stack(home, coordinators=1, executors=1, supervise=Backoff()) as stack, admin_of(stack) as admin:
        run_job(admin, home)
"""
WHOLE_STACK = """
    from bench_stack import whole_stack

    with whole_stack(coordinators=1, executors=1) as (stack, admin):
        run_job(admin, stack.home.root)
"""
PARTS = (
    "postgres",
    "-server 127.0.0.1:",
    "weed",
    "toban_coordinator",
    "toban_executor.guard",
    "toban_log_archiver",
    "sleep 603",
    "sleep 604",
)


@contextmanager
def running(
    folder: Path, *arguments: str, code: str, ending: signal.Signals = signal.SIGKILL
) -> Iterator[tuple[processes.ProcessRecord, str]]:
    """A Python program that gets the signal `ending` at the end of the block, as soon as it has reported that all runs; and what it has reported."""
    reader, report = os.pipe()
    # By its name, since a process of xdist inherits no file.
    report_name = f"/proc/{os.getpid()}/fd/{report}"
    (folder / "test_it.py").write_text(f"import os\nREPORT = os.open('{report_name}', os.O_WRONLY)\n" + code)
    with (
        os.fdopen(reader) as reports,
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, *arguments, "test_it.py"],
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(BENCH)},
        ) as process,
    ):
        try:
            record = processes.unnamed(process.pid)
            # Else the end of a program that has reported nothing is not noticed.
            assert select.select([reports], [], [], SECONDS)[0], (folder / "log").read_text()
            os.close(report)
            said = reports.readline()
            assert said and record is not None, (folder / "log").read_text()
            yield record, said.split()[1]
        finally:
            process.send_signal(ending)


def in_folder(home: str) -> list[int]:
    """Processes with `home` in their command line, first environment or working folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            seen = (
                [entry / "cmdline", entry / "environ"]
                if entry.name.isdigit() and int(entry.name) != os.getpid()
                else []
            )
            texts = [file.read_bytes() for file in seen]
            if seen and os.fsencode(home) in b"\0".join([*texts, os.fsencode((entry / "cwd").readlink())]):
                found.append(int(entry.name))
    return found


def command_lines(records: list[processes.ProcessRecord]) -> str:
    lines = []
    for one in records:
        # One that has just ended, such as a tool that a start calls, has none.
        with suppress(OSError):
            lines.append(Path(f"/proc/{one.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return "\n".join(lines)


def until_all_have_ended(family: list[processes.ProcessRecord]) -> None:
    """The watcher is one of them, so it has done all that it does."""
    assert wait_until(lambda: not any(map(processes.alive, family)), SECONDS), command_lines(
        [one for one in family if processes.alive(one)]
    )


def test_a_shell_that_has_just_started_the_starter_lives_on(tmp_path: Path) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 605; :", "sh", tmp_path]) as shell:
        try:
            since = processes.start_time(shell.pid)
            assert since is not None
            Leftovers([tmp_path], mark="none", since=since).end()
            assert processes.start_time(shell.pid) == since
            Leftovers([tmp_path], mark="none", since=since - 1).end()
            assert processes.start_time(shell.pid) is None
        finally:
            shell.kill()


def test_a_process_ends_with_its_parent(tmp_path: Path) -> None:
    with running(tmp_path, code=textwrap.dedent(CHILD)) as (starter, _):
        [child] = processes.descendants([starter])
    until_all_have_ended([child])


@pytest.mark.parametrize("processes_of_xdist", [[], pytest.param(["-n", "1"], marks=pytest.mark.long)])
def test_nothing_outlives_a_killed_session(tmp_path: Path, processes_of_xdist: list[str]) -> None:
    options = ["-q", "-s", "-c", str(SETTINGS), f"--rootdir={tmp_path}", f"--basetemp={tmp_path / 'temp'}"]
    options += ["-p", "toban_testing.plugin", "-p", "no:cacheprovider", *processes_of_xdist]
    with running(tmp_path, "-m", "pytest", *options, code=textwrap.dedent(SESSION)) as (starter, servers):
        family = processes.descendants([starter])
        lines = command_lines(family)
        assert not [kind for kind in KINDS if kind not in lines], lines
        assert "--type=renderer" in lines or not find_browser(), lines
        assert Path(servers).is_dir()
    until_all_have_ended(family)
    assert not Path(servers).exists()


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("code", [STACK, WHOLE_STACK], ids=["stack", "bench"])
def test_no_stack_outlives_what_has_started_it(code: str, ending: signal.Signals, tmp_path: Path) -> None:
    with running(tmp_path, code=textwrap.dedent(JOB + code), ending=ending) as (starter, home):
        family = processes.descendants([starter])
        lines = command_lines(family)
        assert not [part for part in PARTS if part not in lines], lines
        assert ("toban_stack.supervisor" in lines) == (code == STACK), lines
    until_all_have_ended(family)
    assert not in_folder(home)
    assert Path(home).exists() == (code == STACK), "a bench's folder is removed"
    assert not StackPaths(Path(home)).sockets.exists()
