"""scheduler.emit_event as applications use it: by a login role that has nothing but toban_emit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

pytestmark = pytest.mark.pg_versions
PASSWORD = "app-password"


@pytest.fixture
def owner(pg_major: int, pg_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def app_url(pg_url: str, owner: psycopg.Connection[Any]) -> Iterator[str]:
    """A login role of its own, member of toban_emit, with a schema in which it may make what it likes."""
    name = f"app_{owner.info.dbname}"
    role = sql.Identifier(name)
    owner.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE toban_emit").format(role, sql.Literal(PASSWORD)))
    owner.execute(sql.SQL("CREATE SCHEMA AUTHORIZATION {}").format(role))
    yield make_conninfo(pg_url, user=name, password=PASSWORD)
    owner.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
    owner.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.fixture
def app(app_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(app_url, autocommit=True) as connection:
        yield connection


def events(owner: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return owner.execute(
        "SELECT id, event_type, payload, dedupe_key, created_by FROM scheduler.events ORDER BY id"
    ).fetchall()


@pytest.mark.seed(102)
def test_the_role_can_emit(owner: Any, app: Any) -> None:
    app.execute("SELECT scheduler.emit_event('order.paid', jsonb_build_object('id', 7), 'order-7')")
    app.execute("SELECT scheduler.emit_event('order.paid')")
    [(made,)] = app.execute("SELECT scheduler.emit_event(event_type => 'x', payload => NULL)").fetchall()
    by = f"sql:app_{owner.info.dbname}"
    assert [row[1:] for row in events(owner)] == [
        ("order.paid", {"id": 7}, "order-7", by),
        ("order.paid", {}, None, by),
        ("x", {}, None, by),
    ]
    assert made == events(owner)[-1][0]


ALLOWED = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname IN ('scheduler', 'logs')
   AND CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, 'USAGE, SELECT, UPDATE')
            WHEN c.relkind IN ('r', 'p', 'v') THEN has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
            ELSE false END
"""
CALLABLE = """
SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname IN ('scheduler', 'logs') AND has_schema_privilege(n.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE')
   AND p.prorettype <> 'trigger'::regtype
"""


def test_the_role_can_do_nothing_else(owner: Any, app: Any) -> None:
    assert len(owner.execute(ALLOWED).fetchall()) > 30, "the question finds what the owner may do"
    assert app.execute(ALLOWED).fetchall() == []
    assert app.execute(CALLABLE).fetchall() == [("emit_event",)]
    for statement in (
        "SELECT * FROM scheduler.events",
        "INSERT INTO scheduler.events (event_type) VALUES ('x')",
        "CREATE TABLE scheduler.mine (a int)",
        "SELECT scheduler.drop_partition('2100-01-01')",
        "SELECT scheduler.ensure_partitions('2100-01-01', '2100-01-02')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            app.execute(statement)


def test_a_role_without_the_grant_cannot_emit(owner: Any, app: Any) -> None:
    owner.execute(sql.SQL("REVOKE toban_emit FROM {}").format(sql.Identifier(app.info.user)))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        app.execute("SELECT scheduler.emit_event('x')")


def test_objects_of_the_caller_change_nothing(owner: Any, app: Any) -> None:
    schema = app.info.user
    app.execute(f"SET search_path = {schema}, pg_temp, pg_catalog, public")
    app.execute(
        "CREATE TEMP TABLE events (event_type text, payload jsonb, dedupe_key text, created_by text, id bigint)"
    )
    app.execute(
        f"CREATE TABLE {schema}.events (event_type text, payload jsonb, dedupe_key text, created_by text, id bigint)"
    )
    for name, arguments, result in (
        ("left", "text, integer", "text"),
        ("octet_length", "text", "integer"),
        ("jsonb_typeof", "jsonb", "text"),
        ("quote_literal", "text", "text"),
    ):
        for place in (schema, "pg_temp"):
            app.execute(
                f"CREATE FUNCTION {place}.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION 'taken over as %', current_user; END $$"
            )
    app.execute(
        f"CREATE FUNCTION {schema}.always(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'taken over'; END $$"
    )
    app.execute(f"CREATE OPERATOR {schema}.!~ (LEFTARG = text, RIGHTARG = text, FUNCTION = {schema}.always)")
    app.execute("SET standard_conforming_strings = off")
    app.execute("SET transform_null_equals = on")
    app.execute("SELECT scheduler.emit_event('order.paid', '{\"a\": 1}', 'k')")
    assert [row[1:4] for row in events(owner)] == [("order.paid", {"a": 1}, "k")]
    assert app.execute("SELECT count(*) FROM pg_temp.events").fetchone() == (0,)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="event_type is 'a b'"):
        app.execute("SELECT scheduler.emit_event('a b')")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("NULL", "event_type is NULL, which is not a type of event"),
        ("''", "event_type is ''"),
        ("'order paid'", "event_type is 'order paid'"),
        ("E'x\\n'", "event_type is 'x"),
        ("repeat('x', 129)", "event_type is 'xxx"),
        ("'x', '[]'", "payload is a JSON array, not an object"),
        ("'x', 'null'", "payload is a JSON null"),
        ("'x', jsonb_build_object('a', repeat('x', 32760))", "payload has 32769 bytes as text, at most 32768"),
        ("'x', '{}', ''", "dedupe_key has 0 bytes, 1 to 200"),
        ("'x', '{}', repeat('é', 101)", "dedupe_key has 202 bytes"),
    ],
)
def test_a_wrong_argument_is_named_with_a_hint(owner: Any, app: Any, arguments: str, words: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
        app.execute(f"SELECT scheduler.emit_event({arguments})")
    assert f"scheduler.emit_event: {words}" in str(caught.value) and caught.value.diag.message_hint
    assert events(owner) == []


def test_an_emit_neither_waits_nor_blocks(owner: Any, app: Any, app_url: str) -> None:
    with psycopg.connect(app_url) as open_one, open_one.cursor() as cursor:
        cursor.execute("SELECT scheduler.emit_event('x', '{}', 'k')")
        app.execute("SET lock_timeout = '100ms'")
        app.execute("SELECT scheduler.emit_event('x', '{}', 'k')")
        # A leader that holds every event, and a vacuum, stop no application.
        with owner.transaction():
            owner.execute("SELECT 1 FROM scheduler.events FOR UPDATE")
            app.execute("SELECT scheduler.emit_event('x', '{}', 'k')")
        owner.execute("VACUUM scheduler.events")
        open_one.rollback()
    assert len(events(owner)) == 2
