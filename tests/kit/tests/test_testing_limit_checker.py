"""The checker of limits sees each kind of fault, and nothing where all is well."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest

from toban_testing.limit_checker import check_limits, limit_faults

RUN: LiteralString = """
INSERT INTO scheduler.runs_live (id, definition_id, definition_version, job_name, origin, scheduled_for, max_attempts, max_lost, timeout_seconds,
                                 payload, log_ref, created_by, state, token, log_day, leader_epoch, assigned_incarnation, assigned_worker_id,
                                 assigned_at, dispatched_at, concurrency_group)
SELECT nextval('scheduler.run_id_seq'), d.id, 1, d.name, 'demand', now(), 1, 3, 0, '{"k": "a"}', '', '', 'ASSIGNED', 4711, now()::date, 1,
       e.incarnation, e.worker_id, now(), now() + interval '1 s', 'job'
  FROM scheduler.job_definitions d, scheduler.executors e
RETURNING id
"""


class Database:
    """Runs of one job, as they stand in the tables."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True)

    def job(self, **concurrency: Any) -> None:
        """A definition and an executor for its runs."""
        spec = json.dumps({"concurrency": concurrency})
        self.connection.execute(
            "INSERT INTO scheduler.job_definitions (name, spec, spec_hash) VALUES ('etl', %s, '')", [spec]
        )
        self.connection.execute(
            "INSERT INTO scheduler.job_definition_versions (definition_id, version, spec) SELECT id, 1, spec FROM scheduler.job_definitions"
        )
        self.connection.execute(
            "INSERT INTO scheduler.executors (incarnation, worker_id, instance, node_id, boot_id, pid, grpc_host, grpc_port,"
            " key_hash, lease_ms, slots)"
            " VALUES (gen_random_uuid(), nextval('scheduler.worker_id_seq'), 'e', 'e', 'boot', 1, 'h', 1, ''::bytea, 10000, 4)"
        )

    def run(self, *holds: str) -> int:
        """A run that was sent and holds limits."""
        row = self.connection.execute(RUN).fetchone()
        assert row is not None
        for key in holds:
            self.connection.execute(
                "INSERT INTO scheduler.limit_holds (key, run_id, token, weight) VALUES (%s, %s, 4711, 1)", [key, row[0]]
            )
        return int(row[0])


@pytest.fixture
def database(pg_url: str) -> Iterator[Database]:
    found = Database(pg_url)
    yield found
    # The end of this test is checked, too.
    found.connection.execute("DELETE FROM scheduler.runs_live")
    found.connection.close()


@pytest.mark.parametrize(
    ("concurrency", "name"),
    [
        ({"limit": 1}, "job:etl"),
        ({"limit_key": "k", "limit_per_key": 1}, 'key:etl/"a"'),
        ({"pools": {"p": 2}}, "pool:p"),
        ({"policy": "queue"}, "group:etl/job"),
        ({"policy": "replace"}, "group:etl/job"),
    ],
)
def test_one_run_too_many_is_seen(database: Database, concurrency: dict[str, Any], name: str) -> None:
    database.connection.execute("INSERT INTO scheduler.limits (name, value) VALUES ('pool:p', 3)")
    database.job(**concurrency)
    database.run("job:etl")
    assert limit_faults(database.connection) == []
    second = database.run("job:etl")
    [fault] = limit_faults(database.connection)
    assert fault.startswith(f"{name}: ")
    with pytest.raises(AssertionError, match="limits do not hold"):
        check_limits(database.connection)
    database.connection.execute("INSERT INTO scheduler.limit_overrides (run_id) VALUES (%s)", [second])
    assert limit_faults(database.connection) == []


def test_a_run_that_is_not_counted_is_seen(database: Database) -> None:
    database.job(limit=3)
    run = database.run()
    assert limit_faults(database.connection) == [f"run {run} is live and takes nothing of job:etl: 1 live, 0 allowed"]


def test_a_smaller_limit_lets_live_runs_go_on(database: Database) -> None:
    database.job(limit=2)
    database.run("job:etl")
    database.run("job:etl")
    database.connection.execute(
        "INSERT INTO scheduler.limits (name, value, updated_at) VALUES ('job:etl', 1, now() + interval '1 minute')"
    )
    assert limit_faults(database.connection) == []
    database.connection.execute("UPDATE scheduler.limits SET updated_at = now()")
    assert limit_faults(database.connection) == ["job:etl: 2 live, 1 allowed"]
