"""Names of the objects that people name, for suggestions and for limits of their number."""

from __future__ import annotations

from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


async def names(t: Tx, kind: str) -> list[str]:
    """The first 5,000 names of one kind, in order: executor group, hook, job, schedule, secret (of jobs), trigger, webhook."""
    return [row["name"] for row in await t.fetch_all(_sql.names, {"kind": kind})]
