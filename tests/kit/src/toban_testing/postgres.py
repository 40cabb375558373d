"""Databases for tests: clones of a template that is migrated once per session, reset and reused where possible."""

from itertools import count
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from toban_store import migrate
from toban_testing.database_reset import Fresh
from toban_testing.kept_sessions import end_kept, kept_pids

TEMPLATE = "toban_template"


class PostgresTestServer:
    """Creates, resets and drops databases on one running server."""

    def __init__(self, *, url: str) -> None:
        self.url = url
        self._numbers = count(1)
        self._fresh: Fresh | None = None
        self._idle: list[str] = []
        self._connections: dict[str, psycopg.Connection] = {}

    def empty(self) -> str:
        """A new database without our schemas; returns its URL."""
        return self._create("template1")

    def migrated(self) -> str:
        """A freshly migrated database; returns its URL."""
        if self._fresh is None:
            template = self._of(TEMPLATE)
            self.drop(template)  # one whose migration failed
            self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
            migrate.up(template)
            self._fresh = Fresh.of(template)
        return self._idle.pop() if self._idle else self._create(TEMPLATE)

    def take_back(self, url: str) -> None:
        """Takes a migrated database after its test: reset for reuse, or dropped when the test changed more than rows."""
        connection = self.connection(url)
        connection.execute(_END_OTHERS, [kept_pids(_name(url))], prepare=True)
        if self._fresh is not None and self._fresh.restore(connection):
            self._idle.append(url)
        else:
            self.drop(url)

    def connection(self, url: str) -> psycopg.Connection:
        """An open connection with autocommit, kept for the next call: opening one costs more than the reset of a database.

        It is a session of the database owner that is idle while a test runs. It fires no trigger; a session that turns triggers off and on loses
        the plans of all its statements each time.
        """
        kept = self._connections.get(url)
        if kept is not None:
            try:
                kept.execute("SELECT 1")
                return kept
            except psycopg.OperationalError:  # The test ended every session of its database.
                kept.close()
        self._connections[url] = psycopg.connect(url, autocommit=True, options="-c session_replication_role=replica")
        return self._connections[url]

    def close(self) -> None:
        """Closes the kept connections."""
        while self._connections:
            self._connections.popitem()[1].close()

    def drop(self, url: str) -> None:
        """Drops a database that this object created, ending its connections."""
        if url in self._idle:
            self._idle.remove(url)
        if kept := self._connections.pop(url, None):
            kept.close()
        end_kept(_name(url))
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(_name(url))))

    def _create(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        self._execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        return self._of(name)

    def _of(self, name: str) -> str:
        return f"{self.url.rpartition('/')[0]}/{name}"

    def _execute(self, statement: sql.Composed) -> None:
        self.connection(self.url).execute(statement)


def as_role(url: str, role: str) -> str:
    """The URL with sessions that act as `role` from their beginning."""
    return f"{url}?options=-c%20role%3D{role}"


_END_OTHERS: LiteralString = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
 WHERE datname = current_database()
   AND pid <> pg_backend_pid() AND pid <> ALL(%s::int[])"""


def _name(url: str) -> str:
    return str(conninfo_to_dict(url)["dbname"])
