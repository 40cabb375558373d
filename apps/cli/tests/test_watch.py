"""`--watch`: in place on a terminal, what changed on a pipe, through an outage, until Ctrl-C. No test waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_cli import report
from toban_cli import watch as module
from toban_cli.options import Format
from toban_cli.tree import _with_seconds
from toban_cli.watch import OUTAGE_SECONDS, PipeView, TerminalView, watch
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb

Toban = Callable[..., tuple[int, str, str]]
AWAY = TobanError(ErrorCode.UNAVAILABLE, "no coordinator answers")


class Ticks:
    """A clock that moves when the watch waits; Ctrl-C comes after `rounds` waits."""

    def __init__(self, rounds: int) -> None:
        self.at = datetime(2026, 11, 21, 12, tzinfo=UTC)
        self.rounds = rounds
        self.waits: list[float] = []

    def now(self) -> datetime:
        return self.at

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        if len(self.waits) > self.rounds:
            raise KeyboardInterrupt
        self.at += timedelta(seconds=seconds)


def looks(*answers: str | TobanError) -> Callable[[], bool | None]:
    """A refresh that prints these texts or raises these errors, the last one for ever."""
    left = list(answers)

    def look() -> bool | None:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, TobanError):
            raise answer
        report.echo(answer)
        return None

    return look


def test_without_it_there_is_one_look(capsys: pytest.CaptureFixture[str]) -> None:
    watch(looks("one", "two"), None)
    assert capsys.readouterr().out == "one\n"


def test_a_pipe_gets_what_changed(capsys: pytest.CaptureFixture[str]) -> None:
    ticks = Ticks(5)
    watch(looks("a RUNNING 5s ago", "a RUNNING 7s ago", "a DONE now", "a DONE 2m ago"), 2.0, time=ticks)
    assert capsys.readouterr().out == (
        "--- 2026-11-21 12:00:00\na RUNNING 5s ago\n--- 2026-11-21 12:00:04\na DONE now\n"
    )
    assert ticks.waits == [2.0] * 6


@pytest.mark.parametrize(("form", "between"), [(Format.JSON, ""), (Format.YAML, "---\n"), (Format.NAME, "")])
def test_data_on_a_pipe_has_no_lines_for_people(capsys: pytest.CaptureFixture[str], form: Format, between: str) -> None:
    watch(looks("1", "1", "2"), 1.0, form, time=Ticks(4))
    assert capsys.readouterr().out == f"{between}1\n{between}2\n"


def test_an_outage_is_lived_through(capsys: pytest.CaptureFixture[str]) -> None:
    watch(looks("one", AWAY, AWAY, "two"), 2.0, time=Ticks(4))
    out, err = capsys.readouterr()
    assert out.splitlines()[1::2] == ["one", "two"]
    assert err == "error: no coordinator answers (at 12:00:02; retrying)\n"


def test_a_long_outage_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    ticks = Ticks(10_000)
    with pytest.raises(TobanError) as caught:
        watch(looks("one", AWAY), 10.0, time=ticks)
    assert caught.value is AWAY
    assert sum(ticks.waits) == pytest.approx(OUTAGE_SECONDS, abs=10)


@pytest.mark.parametrize("answers", [(AWAY,), ("one", TobanError(ErrorCode.PERMISSION_DENIED, "no"))])
def test_an_error_that_does_not_pass_ends_it_at_once(answers: Any) -> None:
    ticks = Ticks(10)
    with pytest.raises(TobanError):
        watch(looks(*answers), 1.0, time=ticks)
    assert len(ticks.waits) == len(answers) - 1


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is written to a terminal of 40 × 6."""
    written: list[str] = []
    monkeypatch.setattr(module, "_write", written.append)
    yield written


def test_a_terminal_is_drawn_over_and_given_back(terminal: list[str]) -> None:
    view = TerminalView(2, size=lambda: (40, 6))
    watch(looks("one", "two\n" * 9), 2.0, view=view, time=Ticks(1))
    enter, first, second, leave = terminal
    assert enter == "\x1b[?1049h\x1b[?25l"
    assert first == "\x1b[H12:00:00  every 2s, Ctrl-C ends\x1b[K\r\n\x1b[K\r\none\x1b[K\r\n\x1b[J"
    assert second.count("\r\n") == 5, "it fits: the screen never scrolls"
    assert "… 8 more lines" in second
    assert leave == "\x1b[?25h\x1b[?1049l"


def test_a_terminal_keeps_the_last_frame_in_an_outage(terminal: list[str]) -> None:
    view = TerminalView(2, size=lambda: (200, 50))
    watch(looks("one", AWAY, AWAY, "two"), 2.0, view=view, time=Ticks(3))
    assert [("one" in frame, "error: no coordinator answers (since 12:00:02" in frame) for frame in terminal[1:5]] == [
        (True, False),
        (True, True),
        (True, True),
        (False, False),
    ]


def test_a_terminal_is_given_back_after_an_error(terminal: list[str]) -> None:
    broken = TobanError(ErrorCode.INTERNAL, "broken")
    with pytest.raises(TobanError):
        watch(looks("one", broken), 2.0, view=TerminalView(2), time=Ticks(3))
    assert terminal[-1] == "\x1b[?25h\x1b[?1049l"


def test_what_is_over_stays_on_the_terminal(terminal: list[str]) -> None:
    ends = iter([False, False, True])

    def look() -> bool:
        over = next(ends)
        report.echo("over" if over else "not yet")
        return over

    ticks = Ticks(10)
    watch(look, 1.0, view=TerminalView(1), time=ticks)
    assert len(ticks.waits) == 2
    assert terminal[-1] == "\x1b[?25h\x1b[?1049lover\n"


def test_what_is_over_already_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    ticks = Ticks(10)

    def look() -> bool:
        report.echo("done")
        return True

    watch(look, 1.0, view=PipeView(Format.NAME), time=ticks)
    assert (capsys.readouterr().out, ticks.waits) == ("done\n", [])


@pytest.mark.parametrize(
    ("argv", "seen"),
    [
        (["-w"], ["-w", "2"]),
        (["--watch", "-n", "3"], ["--watch", "2", "-n", "3"]),
        (["-w", "5", "x"], ["-w", "5", "x"]),
        (["--watch=5"], ["--watch=5"]),
        (["-n", "3", "--", "-w"], ["-n", "3", "--", "-w"]),
    ],
)
def test_the_number_may_be_left_out(argv: list[str], seen: list[str]) -> None:
    assert _with_seconds(argv) == seen


@pytest.mark.parametrize(
    "argv", [("run", "list"), ("executor", "list"), ("cluster", "status"), ("job", "list"), ("schedule", "list")]
)
def test_the_listings_take_it(
    cluster: Any, toban: Toban, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]
) -> None:
    monkeypatch.setattr(module, "_SystemTime", lambda: Ticks(2))
    cluster.reader.answers |= {
        "ListRuns": pb.ListRunsResponse(runs=[pb.Run(id=1)]),
        "ListExecutors": pb.ListExecutorsResponse(executors=[pb.Executor(worker_id=1)]),
        "GetCluster": pb.Cluster(leader_address="1"),
        "ListJobs": pb.ListJobsResponse(jobs=[pb.Job(name="1")]),
        "ListSchedules": pb.ListSchedulesResponse(schedules=[pb.Schedule(name="1")]),
    }
    assert toban(*argv, "-o", "name", "--watch") == (0, "1\n", "")
    assert len(cluster.reader.requests) == 3


def test_a_run_is_watched_until_it_ends(cluster: Any, toban: Toban, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = Ticks(10)
    monkeypatch.setattr(module, "_SystemTime", lambda: ticks)
    cluster.reader.runs = [pb.Run(id=12, job="x", state="SUCCEEDED")]
    code, out, _ = toban("run", "get", "12", "-w", "0.5")
    assert (code, out.count("State:"), ticks.waits) == (0, 1, [])


def test_a_cluster_that_goes_and_comes_back(cluster: Any, toban: Toban, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state changes while no coordinator responds: the watch continues by itself, and shows it."""

    class Steps(Ticks):
        def wait(self, seconds: float) -> None:
            done = len(self.waits)
            self.waits.append(seconds)
            if done == 0:
                cluster.go_away()
            elif done == 2:
                cluster.reader.answers["ListRuns"] = pb.ListRunsResponse(runs=[pb.Run(id=1), pb.Run(id=2)])
                cluster.come_back()
            elif done > 2:
                if len(cluster.reader.requests) > 1:
                    raise KeyboardInterrupt
                # gRPC connects again by itself within two seconds.
                threading.Event().wait(0.1)

    monkeypatch.setattr(module, "_SystemTime", lambda: Steps(0))
    cluster.reader.answers["ListRuns"] = pb.ListRunsResponse(runs=[pb.Run(id=1)])
    code, out, err = toban("run", "list", "-o", "name", "-w", "0.1")
    assert (code, out) == (0, "1\n1\n2\n")
    # Where gRPC was loaded before, its library adds a line of its own about the connection.
    [told] = [line for line in err.splitlines() if "error: " in line]
    assert told.startswith("error: no coordinator answers")
