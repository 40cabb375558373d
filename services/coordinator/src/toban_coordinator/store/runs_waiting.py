"""What a page asks of a run that was not sent yet."""

from __future__ import annotations

from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)


async def waiting(t: Tx, run_id: int) -> Row | None:
    """Definition and times of a live run that was not sent, and PostgreSQL's time; None when it was sent or is over."""
    return await t.fetch_one(_sql.waiting, {"id": run_id})
