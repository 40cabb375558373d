"""PostgreSQL has lost the commit of an outcome, or cannot store one: with real executors the run ends all the same, and never too early."""

from pathlib import Path

import pytest

from toban_stack.stack import Stack
from toban_testing.run_recorder import by_run, recorder_job
from toban_testing.stack_fixtures import admin_of, running_stack, sql

pytestmark = [pytest.mark.e2e, pytest.mark.long]
HISTORY = (
    "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'scheduler.runs_history'::regclass"
)
ATTEMPTS = "SELECT state, reason FROM scheduler.job_attempts WHERE run_id = %(run)s ORDER BY token"


def lose_the_commit(stack: Stack, run: int, table: str) -> None:
    """The run is live again, as `table` has it."""
    sql(
        stack,
        "WITH gone AS (DELETE FROM scheduler.runs_history WHERE id = %(run)s),"
        " attempt AS (UPDATE scheduler.job_attempts SET state = 'RUNNING', outcome = NULL WHERE run_id = %(run)s)"
        f" INSERT INTO scheduler.runs_live SELECT * FROM {table} WHERE id = %(run)s",
        run=run,
    )


@pytest.mark.parametrize("canceled", [False, True])
def test_a_run_whose_accepted_outcome_is_lost_ends(stack: Stack, tmp_path: Path, canceled: bool) -> None:
    record = tmp_path / "record"
    record.mkdir()
    name = f"brief-{canceled}".lower()
    with admin_of(stack) as admin:
        admin.apply(recorder_job(name, record, seconds=2))
        [run] = admin.start(name)
        admin.until(lambda: admin.run(run).state == "RUNNING", of="the run started")
        sql(stack, f"CREATE TABLE before_{canceled} AS SELECT * FROM scheduler.runs_live WHERE id = %(run)s", run=run)
        try:
            assert admin.until_ended(run).state == "SUCCEEDED"
            lose_the_commit(stack, run, f"before_{canceled}")
        finally:
            sql(stack, f"DROP TABLE before_{canceled}")
        assert admin.run(run).state == "RUNNING"
        if canceled:
            admin.cancel(run)
        ended = admin.until_ended(run)
        attempts = [(row["state"], row["reason"]) for row in sql(stack, ATTEMPTS, run=run)]
        if canceled:
            assert ended.state == "CANCELED"
            assert [mark.what for mark in by_run(record)[run]] == ["start", "end"]
        else:
            assert (ended.state, ended.lost_count) == ("SUCCEEDED", 1)
            assert attempts[0] == ("LOST", "lost_result")
            assert [mark.what for mark in by_run(record)[run]] == ["start", "end", "start", "end"]


def test_an_outcome_without_a_partition_is_kept_until_there_is_one(tmp_path: Path) -> None:
    """On a stack of its own: the history of every run is lost."""
    record = tmp_path / "record"
    record.mkdir()
    with running_stack(tmp_path / "home", executors=1) as stack, admin_of(stack) as admin:
        admin.apply(recorder_job("kept", record, seconds=3))
        [run] = admin.start("kept")
        admin.until(lambda: admin.run(run).state == "RUNNING", of="the run started")
        for part in sql(stack, HISTORY):
            sql(stack, f"ALTER TABLE scheduler.runs_history DETACH PARTITION {part['name']}")
            sql(stack, f"DROP TABLE {part['name']}")
        # The refusal wakes the leader, which makes the partitions; the executor sends the outcome again.
        ended = admin.until_ended(run, seconds=120)
        assert (ended.state, ended.lost_count) == ("SUCCEEDED", 0)
        assert [mark.what for mark in by_run(record)[run]] == ["start", "end"]
