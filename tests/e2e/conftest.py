"""The stack that the modules of this folder share, and what they reach a stack with.

A module that kills, fills or reconfigures a stack has a fixture `stack` of its own, which the other fixtures use in its place. A module that shares
one gives its jobs, users and so on names of its own, looks at these alone, and removes at its end what acts by itself: schedules, triggers, webhooks.
"""

from collections.abc import Callable, Generator, Iterator

import pytest

from toban_cli.main import run
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import admin_of, log_tails, running_stack, toban_process


@pytest.fixture(scope="package")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two coordinators, two executors and a site. The plugin runs the tests that use it after each other."""
    with running_stack(tmp_path_factory.mktemp("shared") / "home", admin_webs=1) as made:
        yield made


@pytest.fixture(scope="package")
def stack(shared_stack: Stack) -> Stack:
    """The stack of a module that has none of its own."""
    return shared_stack


@pytest.fixture
def admin(stack: Stack) -> Iterator[AdminClient]:
    """A client of the stack's coordinators."""
    with admin_of(stack) as made:
        yield made


@pytest.fixture
def toban(stack: Stack) -> Callable[..., str]:
    """Runs a command as a process: what it prints. `code` is the expected exit code, `typed` its standard input."""

    def call(*words: str, typed: str = "", code: int = 0) -> str:
        done = toban_process(stack, *words, typed=typed)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout + done.stderr

    return call


@pytest.fixture
def toban_here(
    stack: Stack, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    """Runs a command in this process, which costs less: its exit code and what it prints."""
    monkeypatch.setenv("TOBAN_HOME", str(stack.home.root))

    def call(*words: str) -> tuple[int, str]:
        capfd.readouterr()
        code = run(words)
        out, err = capfd.readouterr()
        return code, out + err

    return call


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what the processes of its stack have logged; the stack of several tests cannot do it itself."""
    report = yield
    stack = item.funcargs.get("stack")
    if report.failed and isinstance(stack, Stack):
        report.sections.append(("Logs of the stack", log_tails(stack)))
    return report
