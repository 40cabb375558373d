"""Leader, executor and PostgreSQL killed under a limit: the jobs themselves prove that never more are live than it allows, and all runs end.

Usage: python -m pytest tests/faults/test_limits_kill.py
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import admin_of, leader_name, running_stack, sql

pytestmark = pytest.mark.e2e
LIMIT = 3
RUNS = 500
# Each run holds one of LIMIT locks as long as any process of it lives; without a free one there are too many.
SCRIPT = """
for n in 1 2 3; do
    flock -n -E 75 "$RECORD/slot-$n" sleep 0.05
    s=$?
    [ $s = 75 ] || exit $s
done
echo "$TOBAN_RUN_ID" >> "$RECORD/over"
exit 99
"""
LEFT = "SELECT count(*) AS n FROM scheduler.runs_live"
HELD = "SELECT count(*) AS n FROM scheduler.runs_live WHERE dispatched_at IS NOT NULL"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path / "home") as one:
        yield one


def limited_job(record: Path) -> dict[str, Any]:
    spec = {
        "steps": [{"id": "main", "type": "command", "argv": ["sh", "-c", SCRIPT]}],
        "allow_shell": True,
        "env": {"RECORD": str(record)},
        "max_lost": 20,
        "concurrency": {"limit": LIMIT},
    }
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "limited"}, "spec": spec}


def wait_until_left(stack: Stack, admin: AdminClient, count: int) -> None:
    def fewer() -> bool:
        assert sql(stack, HELD)[0]["n"] <= LIMIT
        return bool(sql(stack, LEFT)[0]["n"] <= count)

    admin.until(fewer, seconds=120, of=f"at most {count} runs are left")


@pytest.mark.seed(198, 202)
def test_no_kill_lets_more_runs_live_than_the_limit(stack: Stack, tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.mkdir()
    with admin_of(stack) as admin:
        admin.apply(limited_job(record))
        admin.start("limited", count=RUNS)
        wait_until_left(stack, admin, RUNS - 20)
        before = admin.cluster().epoch
        stack.kill(leader_name(stack, admin), signal.SIGKILL)
        admin.until(lambda: admin.cluster().epoch > before, seconds=20, of="another coordinator leads")
        wait_until_left(stack, admin, RUNS - 70)
        executor = next(name for name, one in stack.processes().items() if one.role == "executor")
        stack.kill(executor, signal.SIGKILL)
        wait_until_left(stack, admin, RUNS - 120)
        stack.kill("postgres", signal.SIGKILL)
        stack.start("postgres")
        wait_until_left(stack, admin, 0)
    states = sql(stack, "SELECT state::text AS state, count(*) AS n FROM scheduler.job_runs GROUP BY 1")
    assert [(row["state"], row["n"]) for row in states] == [("SUCCEEDED", RUNS)]
    assert not (record / "over").exists()
