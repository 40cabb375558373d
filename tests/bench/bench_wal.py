"""What PostgreSQL writes a run: from its WAL itself, since the counters of pg_stat_wal arrive up to seconds later.

pg_walinspect reads the records between two positions. It is of PostgreSQL 15 and newer, and for superusers; without it only bytes are known.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg.conninfo import make_conninfo

# Bytes leave out the images of whole pages, which depend on the last checkpoint.
FIGURES = ("wal_bytes", "wal_records", "commits")
_RECORDS: LiteralString = """
SELECT sum(record_size)::bigint, sum(count)::bigint,
       coalesce(sum(count) FILTER (WHERE "resource_manager/record_type" = 'Transaction/COMMIT'), 0)::bigint
  FROM pg_get_wal_stats(%s::text::pg_lsn, %s::text::pg_lsn, true)"""


@dataclass(frozen=True, slots=True)
class WalMark:
    """A position of the WAL, and how often it had been flushed; None where pg_stat_wal does not count that."""

    lsn: str
    flushes: int | None


class StackWal:
    """The WAL of one stack; `url` is of its superuser."""

    def __init__(self, url: str) -> None:
        # Not the stack's own database, whose objects belong to the migrations.
        self._url = make_conninfo(url, dbname="postgres")
        with contextlib.suppress(psycopg.Error), self._connect() as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")

    def mark(self) -> WalMark:
        """Now. Sessions report their flushes once a second at most."""
        with self._connect() as connection:
            row = connection.execute(
                "SELECT pg_current_wal_flush_lsn()::text, to_jsonb(w) -> 'wal_sync' FROM pg_stat_wal w"
            )
            lsn, flushes = row.fetchone() or ("", None)
        return WalMark(lsn, flushes)

    def per_run(self, before: WalMark, after: WalMark, runs: int) -> Mapping[str, float]:
        """FIGURES a run between two marks; none of them where the WAL cannot be read."""
        try:
            with self._connect() as connection:
                row = connection.execute(_RECORDS, (before.lsn, after.lsn)).fetchone() or ()
        except psycopg.Error:
            return {}
        return {name: float(value) / runs for name, value in zip(FIGURES, row, strict=True)}

    def flushes_per_run(self, before: WalMark, after: WalMark, runs: int) -> Mapping[str, float]:
        """By name; empty where they are not counted."""
        if before.flushes is None or after.flushes is None:
            return {}
        return {"wal_flushes": (after.flushes - before.flushes) / runs}

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(self._url, autocommit=True, application_name="bench")
