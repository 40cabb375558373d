"""kill -9 of an executor at every step between a job's end and the answer to its report: on a whole stack the run ends, and its log is whole.

Usage: python -m pytest tests/faults/test_executor_kill.py -s
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from toban_stack import services
from toban_stack.processes import alive
from toban_stack.stack import Stack
from toban_stack.wait import wait_until
from toban_testing.deterministic_log_jobs import ReadAttempt, check_run, is_whole, printing_job
from toban_testing.log_readers import LogReaders
from toban_testing.stack_fixtures import admin_of, running_stack, sql

pytestmark = pytest.mark.e2e
STEPPING = Path(__file__).parents[2] / "services" / "executor" / "tests"
# Those of stepping_executor, in order.
STEPS = ("told", "writing", "written", "reporting", "answered")
EXECUTOR = "executor-1"


@pytest.fixture(scope="module")
def kill_at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that names the step at which the executor kills itself."""
    return tmp_path_factory.mktemp("kill-at") / "step"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, kill_at: Path) -> Iterator[Stack]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(STEPPING), prepend=os.pathsep)
        patch.setenv("KILL_AT", str(kill_at))
        patch.setitem(services.MODULES, "executor", "stepping_executor")
        with running_stack(tmp_path_factory.mktemp("executor-kill"), executors=1) as one:
            yield one


def back_again(stack: Stack) -> None:
    """The executor that has killed itself starts again."""
    record = stack.processes()[EXECUTOR]
    assert wait_until(lambda: not alive(record), 30), "the step did not come"
    stack.start(EXECUTOR)


@pytest.mark.parametrize("step", STEPS)
def test_the_log_of_a_run_that_ended_is_whole(stack: Stack, kill_at: Path, step: str) -> None:
    with admin_of(stack) as admin, LogReaders(stack.log_archivers, stack.home.tls / "admin-cli") as readers:
        admin.apply(printing_job("print", max_lost=5))
        kill_at.write_text(step)
        [run_id] = admin.start("print")
        back_again(stack)
        run = admin.until_ended(run_id, seconds=60)
        assert run.state == "SUCCEEDED"

        def whole() -> bool:
            read = readers.read(run_id)
            check_run(run_id, read, ())
            tokens = [row["token"] for row in sql(stack, TOKENS, run_id=run_id)]
            return run.token in tokens and all(is_whole(run_id, t, read.get(t, ReadAttempt())) for t in tokens)

        # Also of an attempt whose result came too late, and which was repeated.
        admin.until(whole, seconds=30, of="every line of every attempt")
        [unsealed] = sql(stack, UNSEALED, run_id=run_id)
        assert unsealed["n"] == 0, "the last line of every attempt has been told"


TOKENS = "SELECT token FROM scheduler.job_attempts WHERE run_id = %(run_id)s"
UNSEALED = "SELECT count(*) AS n FROM logs.tokens WHERE run_id = %(run_id)s AND last_seq IS NULL"
