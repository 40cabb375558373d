"""Statements that have to have the same effect are run on the same rows, one after the other, and the rows that they leave are compared."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from toban_store.tx import Tx


@asynccontextmanager
async def undone(t: Tx) -> AsyncIterator[None]:
    """Undoes at the end of the block what it has written in this transaction, in which now() stands still."""
    await t.execute("SAVEPOINT before")
    try:
        yield
    finally:
        await t.execute("ROLLBACK TO SAVEPOINT before")
        # Else it would hide the one of a block around this one.
        await t.execute("RELEASE SAVEPOINT before")


async def rows_of(t: Tx, tables: Mapping[str, tuple[str, ...]]) -> dict[str, list[dict[str, Any]]]:
    """All rows of these tables of the schema `scheduler`, each table without the columns named with it."""
    rows = {}
    for table, columns in tables.items():
        sql = f"SELECT to_jsonb(r) - %(columns)s::text[] AS row FROM scheduler.{table} r ORDER BY 1"
        rows[table] = [one["row"] for one in await t.fetch_all(sql, {"columns": list(columns)})]
    return rows
