"""Which attempts the archive may take as ended."""

from datetime import date

import psycopg
import pytest

from toban_coordinator.store.runs.attempts import EndedAttempt, ended
from toban_domain.outcome import AttemptKey
from toban_store.pool import open_pool
from toban_store.tx import autocommit

DAY = date(2026, 11, 1)
EXECUTOR = """
INSERT INTO scheduler.executors (incarnation, worker_id, instance, node_id, boot_id, pid, grpc_host, grpc_port, key_hash, lease_ms, slots,
                                 state, off_at)
VALUES (%(incarnation)s, %(id)s, 'a', 'a', 'b', 1, 'h', 1, '', 1, 1, %(state)s, now() - %(off)s::interval)
"""
ATTEMPT = """
INSERT INTO scheduler.job_attempts (log_day, run_id, token, attempt, leader_epoch, incarnation, worker_id, state, dispatched_at, last_seq)
VALUES ('2026-11-01', %(run)s, 10, 1, 1, %(incarnation)s, 1, %(state)s, now(), %(last_seq)s)
"""
ON, OFF, FRESH, GONE = (f"0000000{n}-0000-4000-8000-000000000000" for n in range(4))
LIVE = """
INSERT INTO scheduler.runs_live (id, definition_id, definition_version, job_name, origin, scheduled_for, state, token,
                                 assigned_incarnation, started_at)
VALUES (%(run)s, 1, 1, 'demo', 'demand', now(), 'RUNNING', 10, gen_random_uuid(), now())
"""


@pytest.mark.pg_versions
async def test_who_has_ended(pg_major: int, pg_url: str) -> None:
    attempts = {
        1: (ON, "RUNNING", None),
        2: (ON, "SUCCEEDED", 7),
        3: (ON, "SUCCEEDED", None),
        4: (OFF, "LOST", None),
        5: (FRESH, "LOST", None),
        6: (GONE, "LOST", None),
        7: (OFF, "RUNNING", None),
    }
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute("SELECT scheduler.ensure_partitions('2026-11-01', '2026-11-01')")
        executors = [(ON, "on", None), (OFF, "off", "2 hours"), (FRESH, "off", "10 minutes")]
        for number, (incarnation, state, off) in enumerate(executors):
            connection.execute(EXECUTOR, {"incarnation": incarnation, "id": number, "state": state, "off": off})
        for run, (incarnation, state, last_seq) in attempts.items():
            row = {"run": run, "incarnation": incarnation, "state": state, "last_seq": last_seq}
            connection.execute(ATTEMPT, row)
        connection.execute(LIVE, {"run": 9})
    pool = await open_pool(pg_url, application_name="test", min_size=1, max_size=1)
    async with autocommit(pool) as t:
        found = await ended(t, DAY, [AttemptKey(run, 10) for run in range(1, 10)], off_seconds=3600)
    await pool.close()
    # 2 told its end; 4 and 6 lost their executors; 8 is forgotten here, and 9 is not: a live run holds it.
    assert found == [
        EndedAttempt(AttemptKey(2, 10), 7),
        EndedAttempt(AttemptKey(4, 10), None),
        EndedAttempt(AttemptKey(6, 10), None),
        EndedAttempt(AttemptKey(8, 10), None),
    ]
