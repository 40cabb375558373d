"""What `make up` prints at its end: the table of the first run, paths as they are called from here."""

from pathlib import Path

import pytest

from toban_stack.console import columns
from toban_stack.quickstart_output import HEADER, classes, near, row


def test_the_table_of_the_first_run() -> None:
    run = {
        "id": 3,
        "job": "hello",
        "slot": "2030-01-01T00:00:05Z",
        "executor": "executor-1",
        "started_at": "2030-01-01T00:00:05.100Z",
        "finished_at": "2030-01-01T00:00:05.350Z",
        "last_line": "hello",
    }
    assert columns([HEADER, row(run)]) == [
        "RUN  JOB    SLOT                  EXECUTOR    SECONDS  LAST LINE OF OUTPUT",
        "3    hello  2030-01-01T00:00:05Z  executor-1  0.250    hello",
    ]


def test_a_path_below_the_working_folder_is_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert near(tmp_path / ".toban" / "log") == Path(".toban/log")
    assert near(Path("/elsewhere/log")) == Path("/elsewhere/log")


def test_the_class_of_executors_is_said_with_its_meaning() -> None:
    isolated = {"isolation": "isolated", "isolation_details": ["a uid for each slot", "own processes"]}
    assert classes(
        [{"node_id": "a", **isolated}, {"node_id": "b", **isolated}, {"node_id": "c", "isolation": "shared"}]
    ) == [
        "a, b: class isolated: each job reaches its own run only (a uid for each slot; own processes)",
        "c: class shared: jobs of this executor are one trust level (no sandbox)",
    ]
