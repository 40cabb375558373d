"""The rights of each service's role are those that its statements need: no statement lacks one, and no right is there without a statement."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import psycopg
import pytest

from toban_store import privileges
from toban_store.queries import FRAGMENTS, read
from toban_store.roles import COORDINATOR, LOG_ARCHIVER
from toban_testing.postgres import as_role
from toban_testing.sql_statements import positional

ROOT = Path(__file__).resolve().parents[2]
# Migrations run these as toban_owner, or as an administrator.
OF_MIGRATIONS = {"roles.sql", "privileges.sql"}
# What only other code needs: the upgrade notes say which.
KEPT_FOR_THE_LAST_RELEASE: set[str] = set()


def statements(service: str) -> dict[str, tuple[str, int]]:
    """Each statement of a service by its name, with the number of its parameters."""
    files = [*ROOT.glob(f"services/{service}/src/**/*.sql"), *ROOT.glob("libs/store/src/toban_store/*.sql")]
    found = {}
    for path in sorted(path for path in files if path.name != FRAGMENTS and path.name not in OF_MIGRATIONS):
        queries = read(path)
        for name in queries:
            text, parameters = positional(getattr(queries, name))
            found[f"{path.stem}.{name}"] = (text, len(parameters))
    return found


def explain(connection: psycopg.Connection, name: str, parameters: int) -> None:
    """Plans a prepared statement, which checks every right that its execution needs on tables and functions."""
    values = f"({', '.join(['NULL'] * parameters)})" if parameters else ""
    connection.execute(f'EXPLAIN EXECUTE "{name}"{values}'.encode())


@pytest.fixture
def owner(pg_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(("service", "role"), [("coordinator", COORDINATOR), ("log-archiver", LOG_ARCHIVER)])
def test_rights_are_those_that_the_statements_need(
    pg_url: str, owner: psycopg.Connection, service: str, role: str
) -> None:
    its = statements(service)
    with psycopg.connect(as_role(pg_url, role), autocommit=True) as connection:
        for name, (text, parameters) in its.items():
            prepared = connection.pgconn.prepare(name.encode(), text.encode())
            assert prepared.status == psycopg.pq.ExecStatus.COMMAND_OK, (name, prepared.get_error_message())
            explain(connection, name, parameters)
        assert unneeded(owner, connection, role, its) == KEPT_FOR_THE_LAST_RELEASE


def unneeded(
    owner: psycopg.Connection, connection: psycopg.Connection, role: str, its: dict[str, tuple[str, int]]
) -> set[str]:
    """Rights on tables without which every statement is still planned."""
    mine = sorted(right for right in privileges.read(owner).rights if right.role == role and right.kind == "TABLE")
    found = set()
    for (name, privilege), group in groupby(mine, key=lambda right: (right.name, right.privilege)):
        rights = list(group)
        for revoke in privileges._statements("REVOKE", "FROM", rights):
            owner.execute(revoke)
        users = [key for key, (text, _) in its.items() if name.partition(".")[2] in text]
        # The trigger of runs_live reads the table of transitions.
        users += [key for key, (text, _) in its.items() if name == "scheduler.run_transitions" and "runs_live" in text]
        if not any(refused(connection, key, its[key][1]) for key in users):
            found.add(f"{privilege} of {name}")
        for grant in privileges._statements("GRANT", "TO", rights):
            owner.execute(grant)
    return found


def refused(connection: psycopg.Connection, name: str, parameters: int) -> bool:
    try:
        explain(connection, name, parameters)
    except psycopg.errors.InsufficientPrivilege:
        return True
    return False
