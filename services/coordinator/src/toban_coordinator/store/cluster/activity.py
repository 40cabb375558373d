"""Runs of the last day by intervals. Reads only."""

from __future__ import annotations

from collections.abc import Sequence

from toban_domain.run import FAILURES
from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)
MOST_LIVE = 50_000


async def ended(t: Tx, *, since: int, until: int, interval: int) -> Sequence[Row]:
    """Runs that ended from `since` until before `until`, seconds since 1970; `interval` in seconds."""
    failed = list(FAILURES)
    return await t.fetch_all(_sql.ended, {"since": since, "until": until, "interval": interval, "failed": failed})


async def live(t: Tx, *, now: float, interval: int) -> Sequence[Row]:
    """Runs that hold slots."""
    return await t.fetch_all(_sql.live, {"now": now, "interval": interval, "limit": MOST_LIVE})
