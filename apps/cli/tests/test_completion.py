"""Shells complete commands, options, and names from the cluster; where no coordinator responds they complete nothing and print nothing."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toban_cli import completion_values
from toban_cli.contexts import Context, ContextFile, Contexts
from toban_proto.v1 import coordinator_pb2 as pb

Toban = Callable[..., tuple[int, str, str]]
ASK = """
source <(toban completion bash)
complete -p toban
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_toban_completion toban
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def bash(tmp_path: Path) -> Callable[..., list[str]]:
    """What bash completes after these words, the last of which is not finished."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    program = tmp_path / "toban"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m toban_cli "$@"\n')
    program.chmod(0o755)

    def complete(*words: str) -> list[str]:
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "--norc", "-c", ASK, "bash", "toban", *words],
            capture_output=True,
            text=True,
            env=environment,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        registered, *found = done.stdout.splitlines()
        assert registered == "complete -o default -F _toban_completion toban"
        return [word for word in found if word]

    return complete


@pytest.fixture
def filled(cluster: Any) -> Any:
    cluster.reader.answers |= {
        "ListJobs": pb.ListJobsResponse(jobs=[pb.Job(name="hello", description="Says hello"), pb.Job(name="report")]),
        "ListSchedules": pb.ListSchedulesResponse(schedules=[pb.Schedule(name="often", job="hello", rule="every 5 s")]),
        "ListRuns": pb.ListRunsResponse(runs=[pb.Run(id=12, job="hello", state="FAILED"), pb.Run(id=123)]),
        "ListExecutors": pb.ListExecutorsResponse(executors=[pb.Executor(worker_id=5, node_id="n", state="on")]),
    }
    return cluster


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("ru",), ["run"]),
        (("run", "st"), ["start"]),
        (("group", "sh"), []),
        (("executor", "show", "--outp"), ["--output"]),
        (("run", "list", "--wat"), ["--watch"]),
        (("run", "list", "-o", "w"), ["wide"]),
        (("run", "list", "--state", "FAI"), ["FAILED"]),
        (("explain", "Schedule.dst."), ["Schedule.dst.gap", "Schedule.dst.fold"]),
    ],
)
def test_bash_completes_what_the_command_knows(
    bash: Callable[..., list[str]], words: tuple[str, ...], found: list[str]
) -> None:
    assert bash(*words) == found


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("run", "start", ""), ["hello", "report"]),
        (("job", "get", "he"), ["hello"]),
        (("run", "list", "--job", "r"), ["report"]),
        (("run", "get", "12"), ["12", "123"]),
    ],
)
def test_bash_completes_names_from_the_cluster(
    filled: Any, bash: Callable[..., list[str]], words: tuple[str, ...], found: list[str]
) -> None:
    assert bash(*words) == found


def test_bash_completes_contexts_and_names_from_the_chosen_one(
    filled: Any,
    site_before: Any,
    bash: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TOBAN_COORDINATORS", "127.0.0.1:1")
    with site_before(filled) as url:
        with ContextFile(os.environ).change() as held:
            held[0] = Contexts(named={"prod": Context(url=url, token="toban_pat_" + "0" * 64)})
        assert bash("--context", "p") == ["prod"]
        assert bash("--context", "prod", "job", "get", "he") == ["hello"]
        assert bash("job", "get", "--context", "prod", "he") == ["hello"]


def test_bash_completes_nothing_without_a_response(
    bash: Callable[..., list[str]], tls: Path, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setenv("TOBAN_COORDINATORS", f"127.0.0.1:{free_port}")
    monkeypatch.setenv("TOBAN_TLS_DIR", str(tls))
    assert bash("job", "get", "") == []
    monkeypatch.setenv("TOBAN_TLS_DIR", "/nowhere")
    assert bash("job", "get", "") == []


def test_names_come_without_words_about_them(filled: Any) -> None:
    assert completion_values.job_names("h") == ["hello"]
    assert completion_values.schedule_names("") == ["often"]
    assert completion_values.run_numbers("12") == ["12", "123"]
    assert completion_values.executor_numbers("") == ["5"]


def test_a_name_that_a_shell_would_evaluate_is_no_name(cluster: Any) -> None:
    jobs = [pb.Job(name=name) for name in ("good", "$(touch x)", "a`id`", "a b", "a'", 'a"', "-x", "a\n")]
    cluster.reader.answers["ListJobs"] = pb.ListJobsResponse(jobs=jobs)
    assert completion_values.job_names("") == ["good"]


# zsh evaluates the whole answer, and its _arguments evaluates the part in quotes once more.
HOSTILE = (
    r"\$(touch /tmp/x)",
    r"\`touch /tmp/x`",
    "$(touch /tmp/x)",
    "'; touch /tmp/x; '",
    '"; touch /tmp/x',
    "a)b] [c:d {e} ((",
    "x\ny",
    "\x1b[31m",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_zsh_is_answered_nothing_that_it_could_evaluate(text: str) -> None:
    from typer._click.shell_completion import CompletionItem

    from toban_cli.commands.completion import Zsh

    made = Zsh.format_completion(Any, CompletionItem("word", help=text))  # type: ignore[arg-type]
    assert re.fullmatch(r'"word":"[A-Za-z0-9 .,/+=_-]+"|"word"', made)


def test_zsh_gets_no_description_of_a_job(cluster: Any) -> None:
    hostile = [pb.Job(name="hello", description=text) for text in HOSTILE]
    cluster.reader.answers["ListJobs"] = pb.ListJobsResponse(jobs=hostile)
    done = subprocess.run(
        [sys.executable, "-m", "toban_cli"],
        capture_output=True,
        text=True,
        env={**os.environ, "_TYPER_COMPLETE_ARGS": "toban job get ", "_TOBAN_COMPLETE": "complete_zsh"},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    words = "\n".join(['"hello"'] * len(HOSTILE))
    assert done.stdout.strip() == f"_arguments '*: :(({words}))'"


def test_what_is_used_of_typers_private_modules_is_there() -> None:
    """A new release of Typer that moves these is found here, not on a terminal."""
    from typer._click.shell_completion import ShellComplete, get_completion_class
    from typer._completion_classes import ZshComplete
    from typer._completion_shared import get_completion_script

    from toban_cli.commands.completion import VARIABLE, Zsh, register_shells

    register_shells()
    assert get_completion_class("zsh") is Zsh
    assert all(get_completion_class(shell) is not None for shell in ("bash", "fish"))
    assert issubclass(ZshComplete, ShellComplete)
    assert "_arguments '*: :((" in inspect.getsource(ZshComplete.complete)
    assert VARIABLE in get_completion_script(prog_name="toban", complete_var=VARIABLE, shell="zsh")


def test_a_silent_cluster_is_not_waited_for(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def read(self: Any, method: str, request: Any, *, timeout: float = 0.0) -> Any:
        asked.append(timeout)
        raise TimeoutError

    monkeypatch.setattr("toban_cli.direct.DirectClient.call", read)
    assert completion_values.job_names("") == []
    assert asked == [completion_values.LOOKUP_TIMEOUT_SECONDS]


@pytest.mark.parametrize(
    ("shell", "words"),
    [("bash", "complete -o default -F"), ("zsh", "#compdef toban"), ("fish", "complete --command toban")],
)
def test_scripts(toban: Toban, shell: str, words: str) -> None:
    code, out, err = toban("completion", shell)
    assert (code, err) == (0, "")
    assert words in out
    assert "_TOBAN_COMPLETE=complete_" + shell in out


@pytest.mark.parametrize(
    ("shell", "environment"),
    [
        ("zsh", {"_TYPER_COMPLETE_ARGS": "toban run sta"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "toban run sta", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_other_shells_get_answers(shell: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "toban_cli"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment, "_TOBAN_COMPLETE": f"complete_{shell}"},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "start" in done.stdout


def test_an_unknown_shell(toban: Toban) -> None:
    code, _, err = toban("completion", "tcsh")
    assert code == 64
    assert "'tcsh' is not known" in err
