"""What doctor finds about the role of a service, on a real PostgreSQL."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from toban_domain.finding import Finding
from toban_store import role_check
from toban_store.pool import open_pool
from toban_store.roles import COORDINATOR, LOG_ARCHIVER
from toban_store.tx import autocommit
from toban_testing.postgres import as_role

pytestmark = pytest.mark.pg_versions
SERVICES = [(COORDINATOR, "scheduler"), (LOG_ARCHIVER, "logs")]


@pytest.fixture
def sql(pg_url: str) -> Iterator[Callable[..., Any]]:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        yield connection.execute


async def look(url: str, schema: str) -> Finding:
    pool = await open_pool(url, application_name="toban-test", min_size=1, max_size=1)
    try:
        async with autocommit(pool) as t:
            return role_check.finding("database-role", await role_check.read(t, schema=schema))
    finally:
        await pool.close()


@pytest.mark.parametrize(("role", "schema"), SERVICES)
async def test_the_role_of_a_service_is_well(pg_major: int, pg_url: str, role: str, schema: str) -> None:
    found = await look(as_role(pg_url, role), schema)
    assert (found.status, found.subject) == ("ok", role)


@pytest.mark.parametrize(("role", "schema"), SERVICES)
async def test_a_superuser_is_too_powerful(pg_major: int, pg_url: str, role: str, schema: str) -> None:
    found = await look(pg_url, schema)
    assert (found.status, found.subject) == ("warning", "toban")
    assert found.value.startswith("has SUPERUSER") and "may act as the owner of schema logs, scheduler" in found.message
    assert role in found.remedy


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("ALTER ROLE {r} CREATEROLE", "has CREATEROLE"),
        ("ALTER ROLE {r} BYPASSRLS", "has BYPASSRLS"),
        ("GRANT pg_write_all_data TO {r}", "is a member of pg_write_all_data"),
        ("GRANT toban_owner TO {r}", "may act as the owner of schema logs, scheduler"),
        ("GRANT toban_log_archiver TO {r}", "is shared with another service: it may also use schema logs"),
        ("GRANT DELETE ON scheduler.admin_action_log TO {r}", "DELETE of scheduler.admin_action_log"),
        ("ALTER SCHEMA scheduler OWNER TO toban", "schema scheduler belongs to a superuser"),
    ],
)
async def test_each_excess_is_named(
    pg_major: int, pg_url: str, sql: Callable[..., Any], statement: str, said: str
) -> None:
    """By a login that is a member of the role, as on servers where roles have no password."""
    sql("CREATE ROLE odd_login IN ROLE toban_coordinator")
    try:
        url = as_role(pg_url, "odd_login")
        assert (await look(url, "scheduler")).ok
        sql(statement.format(r="odd_login"))
        found = await look(url, "scheduler")
        assert found.status == "warning" and said in found.message
    finally:
        sql("DROP OWNED BY odd_login")
        sql("DROP ROLE odd_login")


async def test_a_missing_right_is_an_error(pg_major: int, pg_url: str, sql: Callable[..., Any]) -> None:
    sql("REVOKE UPDATE ON scheduler.leader, scheduler.runs_live FROM toban_coordinator")
    sql("REVOKE SELECT ON scheduler.events, scheduler.settings FROM toban_coordinator")
    found = await look(as_role(pg_url, COORDINATOR), "scheduler")
    assert found.status == "error"
    assert (
        found.value
        == "lacks SELECT of scheduler.events, SELECT of scheduler.settings, UPDATE of scheduler.leader and 1 more"
    )
    assert "migrate up" in found.remedy
