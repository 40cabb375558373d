"""The README's commands: in this clone, and in a fresh one, of which nothing but the clone is needed, and nothing but the clone is left."""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from toban_testing.documents import Shell, steps

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 240


class Newcomer:
    """Somebody with a clone and a shell in which nothing is set, in a home and with a folder for temporary files that are empty.

    `stack` is the folder of the stack, when it is not in the clone.
    """

    def __init__(self, *, clone: Path, home: Path, temporary: Path, stack: Path | None = None) -> None:
        self.clone = clone
        self._stack = stack or clone
        self._outside = (home, temporary, clone.parent)
        # A virtual environment that runs the tests is not the newcomer's.
        path = [part for part in os.environ["PATH"].split(":") if not part.startswith(str(ROOT))]
        unwanted = ("SCHEDULER_", "TOBAN_", "MAKE", "MFLAGS", "VIRTUAL_ENV", "PYTEST", "PYTHON")
        counts = ("COORDINATORS", "EXECUTORS", "LOG_ARCHIVERS", "ADMIN_WEBS")
        kept = {name: v for name, v in os.environ.items() if not name.startswith(unwanted) and name not in counts}
        self.environment = _caches() | kept | {"PATH": ":".join(path), "HOME": str(home), "TMPDIR": str(temporary)}
        if stack is not None:
            self.environment["TOBAN_HOME"] = str(stack)

    def types(self, *argv: str, code: int = 0) -> str:
        """A command in the clone; what it printed."""
        done = subprocess.run(
            argv,
            cwd=self.clone,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == code, f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def processes(self) -> list[str]:
        """Every process that has to do with the stack or its clone, by its command line, folder or environment."""
        name = os.fsencode(self._stack)
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and int(process.name) != os.getpid():
                try:
                    command = (process / "cmdline").read_bytes()
                    words = command + (process / "environ").read_bytes() + os.fsencode((process / "cwd").readlink())
                except OSError:
                    continue
                if name in words:
                    found.append(f"{process.name} {command.decode(errors='replace')}")
        return found

    def left_outside(self) -> list[str]:
        """Every file beside the clone."""
        found = {path for folder in self._outside for path in folder.rglob("*") if not path.is_relative_to(self.clone)}
        return sorted(str(path) for path in found if not path.is_dir())


def _caches() -> dict[str, str]:
    """Where packages that were downloaded already lie, and the settings that say from where: the machine's, not the newcomer's."""
    home = Path.home()
    return {
        "UV_CACHE_DIR": str(home / ".cache/uv"),
        "PIP_CACHE_DIR": str(home / ".cache/pip"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        # pip asks rustc for its version, which notes down where it is.
        "RUSTUP_HOME": str(home / ".rustup"),
    }


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    """A clone of what is committed; its stack is ended when the test fails half-way."""
    clone, home = tmp_path / "clone", tmp_path / "home"
    home.mkdir()
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True, capture_output=True, text=True)
    # Sockets may go there when the clone's path is long, so its own must be short.
    with tempfile.TemporaryDirectory(prefix="new-") as temporary:
        newcomer = Newcomer(clone=clone, home=home, temporary=Path(temporary))
        yield newcomer
        if newcomer.processes():
            newcomer.types("make", "down")


def first_run(output: str) -> list[str]:
    """The cells of the run in the table that `make up` prints."""
    lines = output.splitlines()
    [header] = [number for number, line in enumerate(lines) if line.startswith("RUN ")]
    assert lines[header].split() == "RUN JOB SLOT EXECUTOR SECONDS LAST LINE OF OUTPUT".split()  # noqa: SIM905 (a line)
    return re.split(r"\s{2,}", lines[header + 1].strip())


def pids(status: str) -> dict[str, str]:
    """The process ids by name from the table of `make status`."""
    rows = [line.split() for line in status.splitlines()]
    [header] = [row for row in rows if row[:1] == ["PROCESS"]]
    return {row[0]: row[header.index("PID")] for row in rows if len(row) >= len(header) and row != header}


def first_minutes(newcomer: Newcomer) -> tuple[str, int]:
    """`make up` and the first job; returns what `make up` printed, and the number of the run that it shows."""
    said = newcomer.types("make", "up")
    number, job, slot, executor, seconds, last_line = first_run(said)
    assert int(number) >= 1 and job == "hello" and float(seconds) < 30
    assert re.match(r"\d{4}-\d\d-\d\dT", slot) and re.match(r"executor-\d", executor) and "world" in last_line
    assert re.search(r"^Toban is up after \d+ s\. Stop it with: (TOBAN_HOME=\S+ )?make down$", said, re.MULTILINE)
    assert re.search(r"^First sign-in, .*  http://127\.0\.0\.1:\d+/first#[0-9a-f]{64}$", said, re.MULTILINE)
    output = newcomer.types("scripts/toban", "run", "start", "hello", "--wait", "--follow")
    assert "Hello, world" in output
    return said, int(number)


def test_the_first_job_in_this_clone(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="new-") as temporary:
        newcomer = Newcomer(clone=ROOT, home=tmp_path, temporary=Path(temporary), stack=tmp_path / "stack")
        try:
            first_minutes(newcomer)
        finally:
            newcomer.types("make", "down")
        assert newcomer.processes() == []


@pytest.mark.long
@pytest.mark.seed(24)
def test_the_two_commands_of_the_readme(newcomer: Newcomer) -> None:
    said, number = first_minutes(newcomer)
    assert "local, role admin" in newcomer.types("scripts/toban", "user", "whoami")
    [applied] = re.findall(r"^• examples: (\d+) definitions applied$", said, re.MULTILINE)
    named = newcomer.types("scripts/toban", "validate", "-f", "examples", "-o", "name")
    assert int(applied) == len(named.split())

    leads = r"^Leader: +127\.0\.0\.1:\d+ \(worker \d+, epoch \d+"
    assert re.search(leads, newcomer.types("scripts/toban", "cluster", "status"), re.MULTILINE)
    status = newcomer.types("make", "status")
    assert re.search(r"^Site  http://127\.0\.0\.1:\d+$", status, re.MULTILINE)
    running = pids(status)
    assert {"coordinator-1", "coordinator-2", "executor-1", "executor-2", "log-archiver-1", "admin-web-1"} < set(
        running
    )
    newcomer.types("make", "up")
    assert pids(newcomer.types("make", "status")) == running, "a second `make up` starts nothing anew"

    newcomer.types("make", "down")
    assert newcomer.processes() == []
    newcomer.types("make", "status", code=2)
    newcomer.types("make", "up")
    runs = json.loads(newcomer.types("scripts/toban", "run", "list", "--limit", "500", "-o", "json"))
    assert number in {run["id"] for run in runs}, "data survives"
    newcomer.types("make", "down")
    assert newcomer.processes() == []
    assert newcomer.left_outside() == []
    assert newcomer.types("git", "status", "--porcelain") == "", "everything that it made is ignored by git"


@pytest.mark.long
def test_the_tutorial_line_by_line(newcomer: Newcomer, tmp_path: Path) -> None:
    crontab = tmp_path / "home/bin/crontab"
    crontab.parent.mkdir()
    crontab.write_text("#!/bin/sh\necho '*/5 * * * * df -h /'\n")
    crontab.chmod(0o755)
    environment = newcomer.environment | {"PATH": f"{crontab.parent}:{newcomer.environment['PATH']}"}
    said: dict[str, str] = {}
    with Shell(newcomer.clone, environment) as shell:
        for step in steps((newcomer.clone / "docs/tutorial.md").read_text(encoding="utf-8")):
            if step.file:
                (newcomer.clone / step.file).write_text(step.text)
            else:
                said[step.command] = shell.types(step.command)

    def of(command: str) -> str:
        [found] = [text for typed, text in said.items() if typed.startswith(command)]
        return found

    assert "Hello, Ada!" in of("toban run start hello")
    nights = of("toban schedule next disk-nightly").splitlines()[1:]
    assert "gap: 02:30 does not exist, shifted to 03:30" in "".join(nights) and "fold" in "".join(nights)
    assert "paused" in of("toban schedule get disk-half-minute")
    assert "duplicate" in of("toban event list")
    assert "created" in of("toban apply -f jobs.yaml --dry-run")
    newcomer.types("make", "down")
    assert newcomer.processes() == []
