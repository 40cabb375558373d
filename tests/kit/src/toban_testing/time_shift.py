"""Shifts PostgreSQL's clock for log-archivers only, so that today's output is old enough for the archive."""

from __future__ import annotations

from toban_stack.stack import Stack
from toban_testing.stack_fixtures import sql

# Takes precedence over pg_catalog's function; identifies log-archivers by their application_name.
_NOW = """
CREATE OR REPLACE FUNCTION later.now() RETURNS timestamptz LANGUAGE sql STABLE AS $$
SELECT pg_catalog.now() + CASE WHEN pg_catalog.current_setting('application_name') LIKE 'toban-log-archiver%%'
                               THEN interval '10 days {minutes} minutes' ELSE interval '0' END $$
"""
_SEARCH = "ALTER DATABASE toban SET search_path = later, pg_catalog"
_RECONNECT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'toban-log-archiver%%'"


def move_ten_days_on(stack: Stack) -> None:
    """Shifts the clock of log-archivers by ten days."""
    sql(stack, "CREATE SCHEMA later")
    # Else the roles of services pass it over in their search path.
    sql(stack, "GRANT USAGE ON SCHEMA later TO PUBLIC")
    move_on(stack, minutes=0)
    sql(stack, _SEARCH)
    sql(stack, _RECONNECT)


def move_on(stack: Stack, *, minutes: int) -> None:
    """Shifts the clock of log-archivers by ten days and `minutes`."""
    sql(stack, _NOW.format(minutes=int(minutes)))
