"""Log-archivers for which PostgreSQL's time is later than for everybody else: what was written today is old enough for the archive."""

from __future__ import annotations

from toban_stack.stack import Stack
from toban_testing.stack_fixtures import sql

# Found before pg_catalog's own; log-archivers are known by the name of their connections.
_NOW = """
CREATE OR REPLACE FUNCTION later.now() RETURNS timestamptz LANGUAGE sql STABLE AS $$
SELECT pg_catalog.now() + CASE WHEN pg_catalog.current_setting('application_name') LIKE 'toban-log-archiver%%'
                               THEN interval '10 days {minutes} minutes' ELSE interval '0' END $$
"""
_SEARCH = "ALTER DATABASE toban SET search_path = later, pg_catalog"
_CONNECT_ANEW = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'toban-log-archiver%%'"
)


def move_ten_days_on(stack: Stack) -> None:
    """From now on it is ten days later for log-archivers."""
    sql(stack, "CREATE SCHEMA later")
    move_on(stack, minutes=0)
    sql(stack, _SEARCH)
    sql(stack, _CONNECT_ANEW)


def move_on(stack: Stack, *, minutes: int) -> None:
    """Ten days and `minutes` later."""
    sql(stack, _NOW.format(minutes=int(minutes)))
