"""The A/B bench explains a wrong call, and leaves nothing behind when it is interrupted or cannot start."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from toban_stack.wait import wait_until

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with two commits and the bench, whose bootstrap makes an interpreter that starts one process and waits for ever."""
    root = tmp_path / "clone"
    shutil.copytree(ROOT / "tests" / "bench", root / "tests" / "bench", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".gitignore", root)
    (root / "scripts").mkdir()
    (tmp_path / "tmp").mkdir()
    bootstrap = root / "scripts" / "bootstrap"
    bootstrap.write_text(
        "#!/bin/sh\nmkdir -p .venv/bin\n"
        'printf \'#!/bin/sh\\nmkdir -p "$TOBAN_HOME"\\n[ "$3" = down ] && exit\\nsetsid sleep 987 &\\nsleep 987\\n\' >.venv/bin/python\n'
        "chmod +x .venv/bin/python\n"
    )
    bootstrap.chmod(0o755)
    git(root, "init", "--quiet")
    commit(root)
    checkout = root / "tests" / "bench" / "compare" / "checkout.py"
    # That commit is not in this repository.
    checkout.write_text(checkout.read_text().replace('"e8a2b9c"', f'"{git(root, "rev-parse", "HEAD")}"'))
    commit(root)
    return root


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", "-C", root, *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "a commit")


def bench(root: Path, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, root / "tests" / "bench" / "bench_compare.py", *arguments],
        env={**os.environ, "TMPDIR": str(root.parent / "tmp"), **variables},
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(folder: Path) -> list[str]:
    found = subprocess.run(["pgrep", "-f", "sleep 987"], capture_output=True, text=True, check=False).stdout.split()
    mark = os.fsencode(folder)
    return [pid for pid in found if mark in _environment(pid)]


def _environment(pid: str) -> bytes:
    """Empty for a process that has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def assert_nothing_left(root: Path) -> None:
    assert list((root.parent / "tmp").iterdir()) == []
    assert len(git(root, "worktree", "list").splitlines()) == 1
    assert not (root / ".git" / "worktrees").exists()
    assert processes_of(root.parent) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_and_removes_what_was_started(clone: Path, number: signal.Signals) -> None:
    with bench(clone, "HEAD~1") as process:
        # The launcher and the process that it detached.
        assert wait_until(lambda: len(processes_of(clone.parent)) >= 2, 30.0), process.poll()
        assert len(git(clone, "worktree", "list").splitlines()) == 3
        process.send_signal(number)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130 and "interrupted" in stderr, stderr
    assert_nothing_left(clone)


def test_a_commit_whose_environment_cannot_be_made_is_shown_with_the_reason(clone: Path) -> None:
    (clone / "scripts" / "bootstrap").write_text("#!/bin/sh\necho 'no such package: x' >&2\nexit 3\n")
    commit(clone)
    (clone / "uncommitted").touch()
    with bench(clone, "HEAD~1") as process:
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2 and "scripts/bootstrap of new" in stderr and "no such package: x" in stderr, stderr
    assert "1 files are not committed" in stderr
    assert_nothing_left(clone)


@pytest.mark.parametrize(
    ("arguments", "variables", "answer"),
    [
        (["nosuch"], {}, "'nosuch' is no commit of this clone"),
        (["--help"], {}, "'--help' is no commit of this clone"),
        ([""], {}, "make bench-compare BASE=<commit>"),
        (["HEAD~1"], {"PAIRS": "6"}, "PAIRS='6' is not a number of at least 7"),
    ],
)
def test_a_wrong_call_is_explained(clone: Path, arguments: list[str], variables: dict[str, str], answer: str) -> None:
    with bench(clone, *arguments, **variables) as process:
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 2 and answer in stderr and "Traceback" not in stderr, stderr
    assert_nothing_left(clone)


def test_without_a_git_checkout_or_its_reference_it_says_so(clone: Path) -> None:
    checkout = clone / "tests" / "bench" / "compare" / "checkout.py"
    checkout.write_text((ROOT / "tests" / "bench" / "compare" / "checkout.py").read_text())
    with bench(clone, "HEAD~1") as process:
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 2 and "git fetch --unshallow" in stderr, stderr
    shutil.rmtree(clone / ".git")
    with bench(clone, "HEAD~1") as process:
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 2 and "is not a git checkout" in stderr, stderr
