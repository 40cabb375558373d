"""The stack that the modules of this folder share, and what they reach a stack with.

A module that needs a stack of a special kind has a fixture `stack` of its own, which the other fixtures use in its place. A module that shares one
gives its jobs, users and so on names of its own, looks at these alone, and removes at its end what acts by itself: schedules, triggers, webhooks.
What it kills is started again by the fixture `whole_afterwards`.
"""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from toban_cli.main import run
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import admin_of, log_tails, made_whole, run_environment, running_stack


@pytest.fixture(scope="package")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two coordinators, two executors and a site. The plugin runs the tests that use it after each other."""
    # The receivers of webhooks are in the tests.
    environment = {"SCHEDULER_WEBHOOK_ALLOW": "127.0.0.1"}
    with running_stack(tmp_path_factory.mktemp("shared") / "home", admin_webs=1, environment=environment) as made:
        yield made


@pytest.fixture(scope="package")
def stack(shared_stack: Stack) -> Stack:
    """The stack of a module that has none of its own."""
    return shared_stack


@pytest.fixture
def whole_afterwards(stack: Stack) -> Iterator[None]:
    """What the test kills is started again, so that the next one finds every process."""
    with made_whole(stack):
        yield


@pytest.fixture
def admin(stack: Stack) -> Iterator[AdminClient]:
    """A client of the stack's coordinators."""
    with admin_of(stack) as made:
        yield made


Ended = subprocess.CompletedProcess[str]


@pytest.fixture
def toban_here(stack: Stack, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """As `toban_process`, but in this process, which costs a tenth: `typed` is the standard input of the command, the rest its environment."""

    def call(*words: str, typed: str = "", **environment: str) -> Ended:
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.environ", run_environment(stack, **environment))
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
            code = run(words)
        return Ended(words, code, *capfd.readouterr())

    return call


def checked(done: Ended, code: int) -> Ended:
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


@pytest.fixture
def toban(toban_here: Callable[..., Ended]) -> Callable[..., str]:
    """Runs a command in this process: what it prints. `code` is the expected exit code; the rest as for `toban_here`."""

    def call(*words: str, code: int = 0, **given: str) -> str:
        done = checked(toban_here(*words, **given), code)
        return done.stdout + done.stderr

    return call


@pytest.fixture
def toban_json(toban_here: Callable[..., Ended]) -> Callable[..., Any]:
    """As `toban`: its answer as data, or the error, which is the last line."""

    def call(*words: str, code: int = 0, **given: str) -> Any:
        done = checked(toban_here(*words, "-o", "json", **given), code)
        return json.loads(done.stdout or done.stderr.splitlines()[-1])

    return call


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what the processes of its stack have logged; the stack of several tests cannot do it itself."""
    report = yield
    stack = item.funcargs.get("stack")
    if report.failed and isinstance(stack, Stack):
        report.sections.append(("Logs of the stack", log_tails(stack)))
    return report
