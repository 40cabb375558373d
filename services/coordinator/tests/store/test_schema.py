"""What the schema itself guards: transitions, terminal runs, partitions."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from toban_domain.run import TRANSITIONS, RunState, can_move

pytestmark = pytest.mark.pg_versions

INSERT = """
INSERT INTO scheduler.runs_live (id, definition_id, definition_version, job_name, origin, scheduled_for, state, token,
                                 assigned_incarnation, started_at, deferred_on, worker_type)
VALUES (%(id)s, 1, 1, 'demo', 'demand', now(), %(state)s, 5, gen_random_uuid(), now(), 'job:demo', 'demo')
"""
HISTORY = """
INSERT INTO scheduler.runs_history (id, definition_id, definition_version, job_name, origin, scheduled_for, state, finished_at)
VALUES (1, 1, 1, 'demo', 'demand', now(), 'SUCCEEDED', now())
"""
LIVE = sorted(state for state in RunState if TRANSITIONS[state])


@pytest.mark.seed(57, 153)
def test_the_table_of_transitions_is_the_domain_s(pg_major: int, pg_url: str) -> None:
    with psycopg.connect(pg_url) as connection:
        rows = connection.execute("SELECT from_state, to_state FROM scheduler.run_transitions").fetchall()
    assert set(rows) == {(source.value, target.value) for source in RunState for target in TRANSITIONS[source]}


@pytest.mark.seed(32, 167)
def test_the_trigger_refuses_exactly_the_other_moves(pg_major: int, pg_url: str) -> None:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        pairs = [(source, target) for source in LIVE for target in LIVE if source != target]
        for number, (source, target) in enumerate(pairs):
            connection.execute(INSERT, {"id": number, "state": source})
            try:
                connection.execute("UPDATE scheduler.runs_live SET state = %s WHERE id = %s", (target, number))
                moved = True
            except psycopg.errors.CheckViolation:
                moved = False
            assert moved == can_move(source, target), (source, target)


def test_a_terminal_state_never_stands_in_the_live_table(pg_major: int, pg_url: str) -> None:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(INSERT, {"id": 1, "state": "RUNNING"})
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute("UPDATE scheduler.runs_live SET state = 'SUCCEEDED' WHERE id = 1")


def test_no_run_begins_before_its_base_step(pg_major: int, pg_url: str) -> None:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(INSERT, {"id": 1, "state": "RUNNING"})
        connection.execute("UPDATE scheduler.runs_live SET first_step = 2, base_step = 2 WHERE id = 1")
        for first in (0, None):
            with pytest.raises(psycopg.errors.CheckViolation):
                connection.execute("UPDATE scheduler.runs_live SET first_step = %s WHERE id = 1", (first,))


def test_history_never_changes(pg_major: int, pg_url: str) -> None:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(HISTORY)
        with pytest.raises(psycopg.errors.CheckViolation, match="a terminal run never changes"):
            connection.execute("UPDATE scheduler.runs_history SET reason = 'other'")


def test_only_a_pause_has_an_end(pg_major: int, pg_url: str) -> None:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        [job] = connection.execute(
            "INSERT INTO scheduler.job_definitions (name, spec, spec_hash) VALUES ('demo', '{}', '') RETURNING id"
        ).fetchone() or [0]
        connection.execute(
            "INSERT INTO scheduler.schedules (name, definition_id, spec, spec_hash) VALUES ('demo', %s, '{}', '')",
            (job,),
        )
        for ends in ("job_definitions SET disabled_until", "schedules SET paused_until"):
            with pytest.raises(psycopg.errors.CheckViolation):
                connection.execute(f"UPDATE scheduler.{ends} = now()")


@pytest.mark.parametrize(("schema", "tables"), [("scheduler", 4), ("logs", 2)])
def test_partitions_are_made_once(pg_major: int, pg_url: str, schema: str, tables: int) -> None:
    def ensure(_: int) -> int:
        with psycopg.connect(pg_url, autocommit=True) as connection:
            row = connection.execute(f"SELECT {schema}.ensure_partitions('2031-01-01', '2031-01-05')").fetchone()
            assert row is not None
            return int(row[0])

    with ThreadPoolExecutor(max_workers=4) as threads:
        assert sorted(threads.map(ensure, range(4))) == [0, 0, 0, 5 * tables]
    assert ensure(0) == 0
