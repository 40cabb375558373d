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
# Every user-created row of the catalogue, with the transaction that wrote it.
CATALOGUE: LiteralString = """
SELECT md5(string_agg(line, ',' ORDER BY line)) FROM (
    SELECT 'c' || oid || ' ' || xmin FROM pg_class WHERE oid >= 16384 AND relkind <> 't'
    UNION ALL SELECT 'p' || oid || ' ' || xmin FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT 'k' || oid || ' ' || xmin FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT 't' || oid || ' ' || xmin FROM pg_trigger WHERE oid >= 16384
    UNION ALL SELECT 'y' || oid || ' ' || xmin FROM pg_type WHERE oid >= 16384
    UNION ALL SELECT 'n' || oid || ' ' || xmin FROM pg_namespace
    UNION ALL SELECT 'e' || oid || ' ' || xmin FROM pg_extension
    UNION ALL SELECT 's' || setrole || ' ' || setconfig::text FROM pg_db_role_setting
        WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    UNION ALL SELECT 'a' || attrelid || ' ' || attnum || ' ' || xmin FROM pg_attribute WHERE attrelid >= 16384
) AS made (line)"""
EMPTY: LiteralString = """
DO $$
DECLARE
    name text;
    filled boolean;
BEGIN
    SET LOCAL session_replication_role = replica;
    FOREACH name IN ARRAY {tables}::text[] LOOP
        EXECUTE 'SELECT EXISTS (SELECT FROM ' || name || ')' INTO filled;
        IF filled THEN EXECUTE 'DELETE FROM ' || name; END IF;
    END LOOP;
    PERFORM setval(seqrelid, seqstart, false) FROM pg_sequence;
END $$"""
GREW: LiteralString = (
    "SELECT EXISTS (SELECT FROM unnest(%s::text[]) AS name WHERE pg_relation_size(name::regclass) > %s)"
)


@dataclass(frozen=True, slots=True)
class Fresh:
    """The catalogue and the rows after the migrations."""

    tables: list[str]
    catalogue: str
    rows: dict[str, bytes]

    @classmethod
    def of(cls, template: str) -> "Fresh":
        """Reads the template database at this URL."""
        with psycopg.connect(template, autocommit=True) as connection:
            tables = [str(row[0]) for row in connection.execute(TABLES)]
            return cls(
                tables, _catalogue(connection), {name: data for name in tables if (data := _copy(connection, name))}
            )

    def restore(self, connection: psycopg.Connection) -> bool:
        """Resets the database of a connection. False, without any change, when more than rows of ordinary size has changed."""
        with connection.transaction():
            if _catalogue(connection) != self.catalogue or self._grew(connection):
                return False
            connection.execute(sql.SQL(EMPTY).format(tables=sql.Literal(self.tables)))
            connection.execute("SET LOCAL session_replication_role = replica")
            for name, data in self.rows.items():
                with connection.cursor().copy(f"COPY {name} FROM STDIN (FORMAT binary)".encode()) as copy:
                    copy.write(data)
        return True

    def _grew(self, connection: psycopg.Connection) -> bool:
        row = connection.execute(GREW, [self.tables, LARGEST_TABLE_BYTES]).fetchone()
        return bool(row and row[0])


def _catalogue(connection: psycopg.Connection) -> str:
    row = connection.execute(CATALOGUE).fetchone()
    return str(row[0]) if row else ""


def _copy(connection: psycopg.Connection, table: str) -> bytes:
    """The rows of a table in PostgreSQL's binary form; empty when there are none."""
    with connection.cursor().copy(f"COPY {table} TO STDOUT (FORMAT binary)".encode()) as copy:
        data = b"".join(bytes(part) for part in copy)
    return data if len(data) > _NO_ROWS else b""
