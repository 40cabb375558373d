"""Where the output goes: a reader that leaves, a disk that is full, a stream that is closed, a terminal that shows no colours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toban_cli.tables import table
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import logs_pb2

FULL = Path("/dev/full")


def toban(*argv: str, stdout: int, stderr: int = subprocess.PIPE) -> tuple[int, str]:
    """Exit code and stderr of a command of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "toban_cli", *argv], stdout=stdout, stderr=stderr, text=True, timeout=60
    )
    return done.returncode, done.stderr


@pytest.fixture
def left() -> Any:
    """The write end of a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.fixture
def followed(cluster: Any) -> Any:
    """A run that has written a line and goes on until its log was read twice."""
    cluster.control.answers["StartRuns"] = pb.StartRunsResponse(runs=[pb.StartedRun(run_id=12, created=True)])
    cluster.reader.runs = [pb.Run(id=12, state="RUNNING", token=7), pb.Run(id=12, state="SUCCEEDED", token=7)]
    cluster.logs.first = [logs_pb2.LogLine(seq=1, stream=1, text=b"hello")]
    return cluster


def test_a_reader_that_leaves_ends_a_list_without_a_word(cluster: Any, left: int) -> None:
    cluster.reader.answers["ListRuns"] = pb.ListRunsResponse(runs=[pb.Run(id=1)])
    assert toban("run", "list", stdout=left) == (0, "")


def test_a_reader_that_leaves_ends_the_following_and_not_the_run(followed: Any, left: int) -> None:
    followed.logs.reader = None
    code, err = toban("run", "start", "hello", "--follow", stdout=left)
    assert code == 130 and "Traceback" not in err
    assert err.splitlines()[0] == "run 12 of hello started" and "run 12 continues" in err


def test_a_reader_of_both_streams_that_leaves_ends_the_following_too(followed: Any, left: int) -> None:
    """`2>&1 | head`: 0 would say that the run succeeded."""
    followed.logs.reader = None
    assert toban("run", "start", "hello", "--follow", stdout=left, stderr=subprocess.STDOUT)[0] == 130


def test_a_reader_that_leaves_is_noticed_where_interrupts_are_ignored(followed: Any, left: int) -> None:
    """`toban run start --follow | head &` in a script: the shell ignores SIGINT for its background jobs."""
    followed.logs.reader = None
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert toban("run", "start", "hello", "--follow", stdout=left)[0] == 130
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_reader_that_leaves_when_the_run_is_over_leaves_its_result(followed: Any, left: int) -> None:
    followed.reader.runs = [pb.Run(id=12, state="FAILED", token=7, reason="EXIT")]
    followed.logs.first, followed.logs.late = [], followed.logs.first
    code, err = toban("run", "start", "hello", "--follow", stdout=left)
    assert code == 1 and "cannot be" not in err
    assert err.splitlines()[1].startswith("run 12 FAILED")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_line(cluster: Any) -> None:
    cluster.reader.answers["ListRuns"] = pb.ListRunsResponse(runs=[pb.Run(id=1)])
    with FULL.open("wb") as full:
        code, err = toban("run", "list", stdout=full.fileno())
    assert (code, err) == (
        75,
        "error: the output cannot be written (No space left on device); make room there, or write it elsewhere\n",
    )


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_a_run_is_waited_for_though_its_output_cannot_be_written(followed: Any) -> None:
    with FULL.open("wb") as full:
        code, err = toban("run", "start", "hello", "--follow", stdout=full.fileno())
    assert code == 0 and "Traceback" not in err
    assert "warning: the output cannot be shown: the output cannot be written (No space left on device)" in err
    assert "run 12 SUCCEEDED" in err


def test_a_closed_stdout_is_no_mistake(cluster: Any) -> None:
    cluster.reader.answers["ListRuns"] = pb.ListRunsResponse(runs=[pb.Run(id=1)])
    done = subprocess.run(
        ["bash", "-c", 'exec "$@" >&- <&-', "closed", sys.executable, "-m", "toban_cli", "run", "list"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True)],
)
def test_colours_are_for_terminals_that_want_them(
    environ: dict[str, str],
    coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in ({"TERM": "xterm", "NO_COLOR": ""} | environ).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    table(["STATE"], [["FAILED"]])
    assert ("\x1b[" in capsys.readouterr().out) is coloured
