"""The fire ledger: each due slot has one run or one named skip; a stretch of skipped slots is one row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)


async def withdraw(t: Tx, schedule_id: int, run_ids: Sequence[int], message: str) -> int:
    """fired → withdrawn for the slots of runs that an edit took back; answers how many."""
    if not run_ids:
        return 0
    return await t.execute(_sql.withdraw, {"schedule_id": schedule_id, "run_ids": list(run_ids), "message": message})


async def ahead(t: Tx, schedule_id: int, now: datetime) -> list[datetime]:
    """The first slots of skipped stretches that reach beyond `now`."""
    rows = await t.fetch_all(_sql.ahead, {"schedule_id": schedule_id, "now": now})
    return [row["first_slot"] for row in rows]


async def shorten(t: Tx, schedule_id: int, first: datetime, *, last: datetime, slots: int) -> None:
    """Lets the stretch that begins at `first` end at `last`."""
    await t.execute(_sql.shorten, {"schedule_id": schedule_id, "first": first, "last": last, "slots": slots})


async def forget(t: Tx, schedule_id: int, first: datetime) -> None:
    """Takes the stretch that begins at `first` away: it has not begun."""
    await t.execute(_sql.forget, {"schedule_id": schedule_id, "first": first})


async def last_fired(t: Tx, schedule_id: int, name: str, after: datetime) -> datetime | None:
    """The latest slot after `after` that has a run, of this schedule or of a deleted one of the same name."""
    row = await t.fetch_one(_sql.last_fired, {"schedule_id": schedule_id, "name": name, "after": after})
    return None if row is None else row["slot"]


async def page(t: Tx, name: str, *, below: tuple[datetime, int], limit: int) -> list[Row]:
    """Rows of all schedules that have or had this name, latest slots first, below (first_slot, schedule_id)."""
    return await t.fetch_all(_sql.page, {"name": name, "below_slot": below[0], "below_id": below[1], "limit": limit})


async def known(t: Tx, name: str) -> bool:
    """Whether there is or was a schedule of this name."""
    row = await t.fetch_one(_sql.known, {"name": name})
    return bool(row and row["known"])
