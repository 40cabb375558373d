"""The schedules that fire in the next hours, with their rules."""

from __future__ import annotations

from datetime import datetime

from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)


async def page(t: Tx, *, until: datetime, after: str, limit: int) -> list[Row]:
    """The first `limit` by name after `after`; `rule` is JSON, the same text for the same rule, and `enabled` is about the job."""
    return await t.fetch_all(_sql.page, {"until": until, "after": after, "limit": limit})


async def rest(t: Tx, *, until: datetime, after: str) -> int:
    """How many follow after the name `after`."""
    row = await t.fetch_one(_sql.rest, {"until": until, "after": after})
    return int(row["schedules"]) if row else 0
