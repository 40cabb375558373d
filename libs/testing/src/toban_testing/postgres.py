"""Databases for tests: each is a clone of a template that was migrated once a session."""

from itertools import count

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from toban_store import migrate

TEMPLATE = "toban_template"


class PostgresTestServer:
    """Makes and drops databases on one running server."""

    def __init__(self, *, url: str) -> None:
        self._url = url
        self._numbers = count(1)
        self._migrated = False

    def empty(self) -> str:
        """A new database without our schemas; returns its URL."""
        return self._create("template1")

    def migrated(self) -> str:
        """A new database with every migration applied; returns its URL."""
        if not self._migrated:
            self.drop(self._of(TEMPLATE))  # one whose migration failed
            self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
            migrate.up(self._of(TEMPLATE))
            self._migrated = True
        return self._create(TEMPLATE)

    def drop(self, url: str) -> None:
        """Drops a database that this object made, whoever is connected."""
        name = str(conninfo_to_dict(url)["dbname"])
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _create(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        self._execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        return self._of(name)

    def _of(self, name: str) -> str:
        return f"{self._url.rpartition('/')[0]}/{name}"

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(statement)
