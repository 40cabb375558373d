"""Statements in a transaction that the caller has begun and commits: psycopg 3 and SQLAlchemy 2, also asynchronous, and Django."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from toban.errors import ConfigError


class DjangoConnection(Protocol):
    """What is used of `django.db.connection`; Django has no types."""

    vendor: str
    alias: str
    in_atomic_block: bool

    def cursor(self) -> Any:
        """A cursor of the transaction."""


if TYPE_CHECKING:
    import psycopg
    import sqlalchemy
    import sqlalchemy.ext.asyncio
    import sqlalchemy.orm

    SyncConnection = (
        psycopg.Connection[Any]
        | DjangoConnection
        | sqlalchemy.Connection
        | sqlalchemy.orm.Session
        | sqlalchemy.orm.scoped_session[sqlalchemy.orm.Session]
    )
    AsyncConnection = (
        psycopg.AsyncConnection[Any] | sqlalchemy.ext.asyncio.AsyncConnection | sqlalchemy.ext.asyncio.AsyncSession
    )

_PARAMETER = re.compile(r":([a-z_]+)")


class OutsideTransactionError(ConfigError):
    """The connection has no transaction, so the statement would be committed without your data."""

    def __init__(self, remedy: str) -> None:
        message = f"this would be committed without your data: the connection is in autocommit mode without a transaction; {remedy}"
        super().__init__(message, code="CONFIG_INVALID")


def fetch_value(connection: SyncConnection, statement: str, values: Mapping[str, Any]) -> Any:
    """The first value of a statement with `:name` parameters; None without a row.

    Raises OutsideTransactionError, TypeError for another connection, and what the driver raises.
    """
    any_connection: Any = connection
    match _library(connection):
        case "psycopg" if _is_psycopg(connection, "Connection"):
            _check_psycopg(any_connection)
            # A cursor of its own: the row factory of the connection may be any.
            with any_connection.cursor(row_factory=_tuples()) as cursor:
                row = cursor.execute(_for_psycopg(statement), values).fetchone()
                return row[0] if row else None
        case "sqlalchemy":
            return _fetch_sqlalchemy(any_connection, statement, values)
        case "django":
            return _fetch_django(any_connection, statement, values)
    raise TypeError(_unknown(connection))


async def fetch_value_async(connection: AsyncConnection, statement: str, values: Mapping[str, Any]) -> Any:
    """As `fetch_value`."""
    any_connection: Any = connection
    match _library(connection):
        case "psycopg" if _is_psycopg(connection, "AsyncConnection"):
            _check_psycopg(any_connection)
            async with any_connection.cursor(row_factory=_tuples()) as cursor:
                await cursor.execute(_for_psycopg(statement), values)
                row = await cursor.fetchone()
                return row[0] if row else None
        case "sqlalchemy":
            return await any_connection.run_sync(lambda inner: _fetch_sqlalchemy(inner, statement, values))
    raise TypeError(_unknown(connection))


def _for_psycopg(statement: str) -> str:
    return _PARAMETER.sub(r"%(\1)s", statement)


def _is_psycopg(connection: object, kind: str) -> bool:
    import psycopg

    return isinstance(connection, getattr(psycopg, kind))


def _check_psycopg(connection: Any) -> None:
    from psycopg.pq import TransactionStatus

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise OutsideTransactionError("use `with connection.transaction():`")


def _tuples() -> Any:
    from psycopg.rows import tuple_row

    return tuple_row


def _fetch_sqlalchemy(given: Any, statement: str, values: Mapping[str, Any]) -> Any:
    from sqlalchemy import Connection, text

    connection = given if isinstance(given, Connection) else given.connection()
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise OutsideTransactionError("use an engine or connection without isolation_level AUTOCOMMIT")
    return connection.execute(text(statement), values).scalar()


def _fetch_django(connection: Any, statement: str, values: Mapping[str, Any]) -> Any:
    if connection.vendor != "postgresql":
        raise TypeError(f"the database {connection.alias!r} of Django is {connection.vendor}; this needs PostgreSQL")
    if not connection.in_atomic_block:
        raise OutsideTransactionError("use `with transaction.atomic(using=...):` of that database")
    with connection.cursor() as cursor:
        cursor.execute(_for_psycopg(statement), values)
        row = cursor.fetchone()
        return row[0] if row else None


def _library(connection: object) -> str:
    """The package that a connection comes from, also through a class derived from its own."""
    names = {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}
    return next((name for name in ("psycopg", "sqlalchemy", "django") if name in names), "")


def _unknown(connection: object) -> str:
    return (
        f"{type(connection).__name__} is no connection of psycopg 3, SQLAlchemy 2 or Django, or is of the other kind (asynchronous or not); "
        "with another driver execute the statement of docs/events.md in your transaction"
    )
