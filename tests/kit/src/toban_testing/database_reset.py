"""Records the content of a freshly migrated database, and resets a used database to it."""

from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql

# A larger table is not reset: its dead rows would slow down later tests.
LARGEST_TABLE_BYTES = 1 << 20
# PostgreSQL's binary form without a row: signature, flags, header extension, trailer.
_NO_ROWS = 11 + 4 + 4 + 2

TABLES: LiteralString = """
SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind = 'r' AND c.oid >= 16384 AND n.nspname !~ '^pg_' ORDER BY 1"""
# The tables that a test has added: partitions of days, copies.
ADDED: LiteralString = """
SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind = 'r' AND c.oid >= 16384 AND n.nspname !~ '^pg_' AND format('%%I.%%I', n.nspname, c.relname) <> ALL(%s)"""
# How many user-created rows each table of the catalogue has, and the newest transaction that wrote one, counted from a fixed one. A change
# writes a row, so the newest transaction is a later one; a removal lowers the number.
CATALOGUE: LiteralString = """
SELECT string_agg(concat_ws(' ', kind, number, age('100'::xid) - newest), ',' ORDER BY kind) FROM (
    SELECT 'c', count(*), min(age(xmin)) FROM pg_class WHERE oid >= 16384 AND relkind <> 't'
    UNION ALL SELECT 'p', count(*), min(age(xmin)) FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT 'k', count(*), min(age(xmin)) FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT 't', count(*), min(age(xmin)) FROM pg_trigger WHERE oid >= 16384
    UNION ALL SELECT 'y', count(*), min(age(xmin)) FROM pg_type WHERE oid >= 16384
    UNION ALL SELECT 'n', count(*), min(age(xmin)) FROM pg_namespace
    UNION ALL SELECT 'e', count(*), min(age(xmin)) FROM pg_extension
    UNION ALL SELECT 'a', count(*), min(age(xmin)) FROM pg_attribute WHERE attrelid >= 16384
    UNION ALL SELECT 's' || setrole || setconfig::text, 1, 0 FROM pg_db_role_setting
        WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
) AS made (kind, number, newest)"""
CONTENT: LiteralString = "(SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {table} t)"
CHANGED: LiteralString = "SELECT {name} WHERE {content} IS DISTINCT FROM {fresh}"
FILLED: LiteralString = "SELECT {name} WHERE EXISTS (SELECT FROM {table})"
SEQUENCES: LiteralString = "SELECT setval(seqrelid, seqstart, false) FROM pg_sequence"
GREW: LiteralString = """
SELECT EXISTS (SELECT FROM pg_class WHERE relkind = 'r' AND oid >= 16384 AND pg_relation_size(oid) > %s)"""


@dataclass(frozen=True, slots=True)
class Fresh:
    """The catalogue and the rows after the migrations."""

    tables: list[str]
    catalogue: str
    rows: dict[str, bytes]
    # Selects the names of the tables whose rows are other ones now. One statement, so that the plan of a kept connection serves every reset.
    changed: sql.Composed

    @classmethod
    def of(cls, template: str) -> "Fresh":
        """Reads the template database at this URL."""
        with psycopg.connect(template, autocommit=True) as connection:
            tables = [str(row[0]) for row in connection.execute(TABLES)]
            rows = {name: data for name in tables if (data := _copy(connection, name))}
            changed = [_changed(connection, name) if name in rows else _filled(name) for name in tables]
            return cls(tables, _catalogue(connection), rows, sql.SQL(" UNION ALL ").join(changed))

    def restore(self, connection: psycopg.Connection) -> bool:
        """Resets the database of a connection without triggers. False when more has changed than tables were added, and rows of ordinary size."""
        with connection.transaction():
            if _catalogue(connection) != self.catalogue:
                if added := [_raw(name) for (name,) in connection.execute(ADDED, [self.tables])]:
                    connection.execute(sql.SQL("DROP TABLE {}").format(sql.SQL(", ").join(added)))
                if _catalogue(connection) != self.catalogue:
                    return False
            if _grew(connection):
                return False
            changed = [str(row[0]) for row in connection.execute(self.changed, prepare=True)]
            for name in changed:
                connection.execute(sql.SQL("DELETE FROM {}").format(_raw(name)))
            connection.execute(SEQUENCES, prepare=True)
            for name in self.rows.keys() & set(changed):
                with connection.cursor().copy(f"COPY {name} FROM STDIN (FORMAT binary)".encode()) as copy:
                    copy.write(self.rows[name])
        return True


def _changed(connection: psycopg.Connection, table: str) -> sql.Composed:
    content = sql.SQL(CONTENT).format(table=_raw(table))
    row = connection.execute(sql.SQL("SELECT {}").format(content)).fetchone()
    return sql.SQL(CHANGED).format(name=sql.Literal(table), content=content, fresh=sql.Literal(row and row[0]))


def _filled(table: str) -> sql.Composed:
    return sql.SQL(FILLED).format(name=sql.Literal(table), table=_raw(table))


def _raw(name: str) -> sql.SQL:
    return sql.SQL(name)  # PostgreSQL has quoted it.


def _grew(connection: psycopg.Connection) -> bool:
    row = connection.execute(GREW, [LARGEST_TABLE_BYTES], prepare=True).fetchone()
    return bool(row and row[0])


def _catalogue(connection: psycopg.Connection) -> str:
    row = connection.execute(CATALOGUE, prepare=True).fetchone()
    return str(row[0]) if row else ""


def _copy(connection: psycopg.Connection, table: str) -> bytes:
    """The rows of a table in PostgreSQL's binary form; empty when there are none."""
    with connection.cursor().copy(f"COPY {table} TO STDOUT (FORMAT binary)".encode()) as copy:
        data = b"".join(bytes(part) for part in copy)
    return data if len(data) > _NO_ROWS else b""
