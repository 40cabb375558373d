"""`emit` in transactions of psycopg, SQLAlchemy and Django, by a login that has nothing but toban_emit."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from toban import errors
from toban.events import MAX_PAYLOAD_BYTES, OutsideTransactionError, checked, emit, emit_async

PASSWORD = "app-password"


class App:
    """An application with its own table and role in the database of Toban."""

    def __init__(self, url: str) -> None:
        self.owner = psycopg.connect(url, autocommit=True)
        name = f"sdk_{self.owner.info.dbname}"
        self._role = sql.Identifier(name)
        create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE toban_emit")
        self.owner.execute(create.format(self._role, sql.Literal(PASSWORD)))
        self.owner.execute(sql.SQL("CREATE SCHEMA AUTHORIZATION {}").format(self._role))
        self.conninfo = make_conninfo(url, user=name, password=PASSWORD)
        with self.connect() as connection:
            connection.execute("CREATE TABLE orders (id int)")
        parts = conninfo_to_dict(self.conninfo)
        self.alchemy_url = sqlalchemy.URL.create(
            "postgresql+psycopg",
            username=name,
            password=PASSWORD,
            host=str(parts["host"]),
            port=int(parts.get("port") or 5432),
            database=str(parts["dbname"]),
        )

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.conninfo, **options)

    def events(self) -> list[tuple[Any, ...]]:
        """What was committed."""
        return self.owner.execute("SELECT event_type, payload, dedupe_key FROM scheduler.events ORDER BY id").fetchall()

    def revoke(self) -> None:
        self.owner.execute(sql.SQL("REVOKE toban_emit FROM {}").format(self._role))

    def close(self) -> None:
        self.owner.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(self._role))
        self.owner.execute(sql.SQL("DROP ROLE {}").format(self._role))
        self.owner.close()


@pytest.fixture
def app(pg_url: str) -> Iterator[App]:
    made = App(pg_url)
    yield made
    made.close()


def test_with_the_data_or_not_at_all(app: App) -> None:
    with app.connect(row_factory=dict_row) as connection:
        connection.execute("INSERT INTO orders VALUES (7)")
        number = emit(connection, "order.paid", {"id": 7, "to": "Zürich"}, dedupe_key="order-7")
        assert number > 0 and app.events() == []
        connection.commit()
        emit(connection, "order.paid", {"id": 8})
        connection.rollback()
    assert app.events() == [("order.paid", {"id": 7, "to": "Zürich"}, "order-7")]


def test_a_savepoint_takes_its_event_with_it(app: App) -> None:
    with app.connect(autocommit=True) as connection, connection.transaction():
        emit(connection, "kept")
        with connection.transaction(force_rollback=True):
            emit(connection, "dropped")
    assert app.events() == [("kept", {}, None)]


def test_autocommit_without_a_transaction_is_refused(app: App) -> None:
    with (
        app.connect(autocommit=True) as connection,
        pytest.raises(OutsideTransactionError, match=r"connection\.transaction"),
    ):
        emit(connection, "alone")
    engine = sqlalchemy.create_engine(app.alchemy_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as one, pytest.raises(OutsideTransactionError, match="AUTOCOMMIT"):
        emit(one, "alone")
    engine.dispose()
    assert app.events() == []


def test_without_the_grant_the_driver_names_the_privilege(app: App) -> None:
    app.revoke()
    with app.connect() as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        emit(connection, "order.paid")


def test_asynchronous_connections(app: App) -> None:
    async def use() -> None:
        async with await psycopg.AsyncConnection.connect(app.conninfo) as connection:
            await emit_async(connection, "a", {"n": 1})
            await connection.commit()
            await emit_async(connection, "b")
            await connection.rollback()
        async with await psycopg.AsyncConnection.connect(app.conninfo, autocommit=True) as connection:
            with pytest.raises(OutsideTransactionError):
                await emit_async(connection, "c")

    asyncio.run(use())
    assert app.events() == [("a", {"n": 1}, None)]


def test_connections_and_sessions_of_sqlalchemy(app: App) -> None:
    engine = sqlalchemy.create_engine(app.alchemy_url)
    with engine.begin() as connection:
        emit(connection, "core", {"n": 1}, dedupe_key="k")
    with Session(engine) as session:
        session.execute(sqlalchemy.text("INSERT INTO orders VALUES (1)"))
        emit(session, "orm")
        session.rollback()
        emit(session, "orm", {"n": 2})
        session.commit()
    scoped = scoped_session(sessionmaker(engine))
    emit(scoped, "scoped")
    scoped.commit()
    scoped.remove()
    engine.dispose()
    assert app.events() == [("core", {"n": 1}, "k"), ("orm", {"n": 2}, None), ("scoped", {}, None)]


def test_asynchronous_sessions_of_sqlalchemy(app: App) -> None:
    async def use() -> None:
        engine = create_async_engine(app.alchemy_url)
        async with engine.begin() as connection:
            await emit_async(connection, "core")
        async with AsyncSession(engine) as session:
            await emit_async(session, "orm", {"n": 1})
            await session.commit()
            await emit_async(session, "dropped")
        await engine.dispose()

    asyncio.run(use())
    assert app.events() == [("core", {}, None), ("orm", {"n": 1}, None)]


DJANGO = """
import json, sys
from django.conf import settings

database, sqlite = json.loads(sys.argv[1]), {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
settings.configure(DATABASES={"default": database, "other": sqlite}, USE_TZ=True, TOBAN={"EMIT": "database"})
import django
from django.db import connection, connections, transaction

from toban.events import emit
from toban.transactions import OutsideTransactionError

django.setup()
with transaction.atomic():
    emit(connection, "kept", {"n": "100%s"}, dedupe_key="k")
    try:
        with transaction.atomic():
            emit(connections["default"], "dropped")
            raise KeyError
    except KeyError:
        emit(connection, "second")
from datetime import date
from decimal import Decimal
from uuid import UUID

from toban.django import emit as emit_of_django

with transaction.atomic():
    emit_of_django("encoded", {"at": date(2026, 1, 2), "sum": Decimal("1.50"), "id": UUID(int=7)})
for wrong, kind in ((connection, OutsideTransactionError), (connections["other"], TypeError)):
    try:
        emit(wrong, "alone")
    except kind as error:
        print(type(error).__name__)
"""


def test_connections_of_django(app: App) -> None:
    """In a process of its own: settings of Django are global."""
    url = app.alchemy_url
    named = {"NAME": url.database, "USER": url.username, "PASSWORD": PASSWORD, "HOST": url.host, "PORT": url.port}
    database = json.dumps({"ENGINE": "django.db.backends.postgresql", **named})
    command = [sys.executable, "-c", DJANGO, database]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["OutsideTransactionError", "TypeError"]), done.stderr
    encoded = {"at": "2026-01-02", "sum": "1.50", "id": "00000000-0000-0000-0000-000000000007"}
    assert app.events() == [("kept", {"n": "100%s"}, "k"), ("second", {}, None), ("encoded", encoded, None)]


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("", {}, "", "is no event type"),
    ("a b", {}, "", "is no event type"),
    ("a" * 129, {}, "", "is no event type"),
    ("a", {}, "é" * 101, "more than 200 bytes"),
    ("a", {}, "a\x00", "zero byte"),
    (".a", {}, "", "is no event type"),
    ("a", {}, "\ud800", "lone surrogate"),
    ("a", {"x": [1e300] * 200}, "", "at most 32768"),
    ("a", {"x": "a" * 32_768}, "", "at most 32768"),
    ("a", {"x": float("nan")}, "", "written as JSON"),
    ("a", {"x": object()}, "", "written as JSON"),
    ("a", {"x": "\x00"}, "", "zero byte"),
    ("a", {"x": "\ud800"}, "", "written as JSON"),
    ("a", nested(101), "", "more than 100 levels"),
]


@pytest.mark.parametrize(("event_type", "payload", "key", "words"), WRONG, ids=[row[3] for row in WRONG])
def test_what_the_database_would_refuse_leaves_the_transaction_usable(
    event_type: str, payload: dict[str, Any], key: str, words: str
) -> None:
    with pytest.raises(errors.InvalidRequestError, match=words):
        checked(event_type, payload, key)


def test_what_is_just_allowed_is_stored(app: App) -> None:
    payloads = [nested(100), {"x": "a" * (32_768 - len('{"x": ""}'))}, {"x": "\\u0000 as text"}]
    with app.connect() as connection:
        for payload in payloads:
            emit(connection, "a" * 128, payload, dedupe_key="é" * 100)
    assert [row[1] for row in app.events()] == payloads


NUMBERS: list[dict[Any, Any]] = [
    {"x": [1e300, -1.5e-7, 1e20, 5e-324, 0.1, -2.5, 3, -0.0, 0.0, True, None]},
    {1: "a", "1": 'ü\n\x01\x7f"', "nested": [{}, [], {"b": 1.0}]},
]


@pytest.mark.parametrize("payload", NUMBERS)
def test_bytes_are_counted_as_the_database_counts_them(app: App, payload: dict[str, Any]) -> None:
    text = checked("a", payload, "")["payload"]
    assert text is not None
    [(size,)] = app.owner.execute("SELECT octet_length(CAST(%s AS jsonb)::text)", [text]).fetchall()
    room = MAX_PAYLOAD_BYTES - size - len(', "pad": ""')
    with app.connect() as connection:
        emit(connection, "just", {**payload, "pad": "a" * room})
    with pytest.raises(errors.InvalidRequestError, match=f"has {MAX_PAYLOAD_BYTES + 1} bytes"):
        checked("above", {**payload, "pad": "a" * (room + 1)}, "")


def test_other_connections_are_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match="no connection of psycopg 3"):
        emit(object(), "a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Cursor is no connection of psycopg 3"):
        emit(object.__new__(psycopg.Cursor), "a")
