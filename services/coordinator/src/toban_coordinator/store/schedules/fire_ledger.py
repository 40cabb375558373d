"""The fire ledger: each due slot has one run or one named skip; a stretch of skipped slots is one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_coordinator.store.schedules.schedules_edit import AheadOfSlot
from toban_store import array_literals, queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True)
class Shortened:
    """A skipped stretch of a schedule, known by its first slot, that ends earlier."""

    schedule_id: int
    first: datetime
    last: datetime
    slots: int


async def withdraw(t: Tx, runs: Sequence[AheadOfSlot], messages: Sequence[str]) -> int:
    """fired → withdrawn for the slots of runs that an edit took back, each with its message; answers how many."""
    if not runs:
        return 0
    parameters = {
        "schedule_ids": array_literals.numbers(run.schedule_id for run in runs),
        "slots": array_literals.times(run.slot for run in runs),
        "run_ids": array_literals.numbers(run.id for run in runs),
        "messages": list(messages),
    }
    return await t.execute(_sql.withdraw, parameters)


async def skip(t: Tx, runs: Sequence[Row]) -> None:
    """fired → the reason (new_reason, message) for which a run ended that was not to be sent any more."""
    if not runs:
        return
    parameters = {
        "schedule_ids": array_literals.numbers(run["schedule_id"] for run in runs),
        "slots": array_literals.times(run["slot"] for run in runs),
        "run_ids": array_literals.numbers(run["id"] for run in runs),
        "reasons": [run["new_reason"] for run in runs],
        "messages": [run["message"] for run in runs],
    }
    await t.execute(_sql.skip, parameters)


async def ahead(t: Tx, schedule_ids: Sequence[int], now: datetime) -> list[tuple[int, datetime]]:
    """The skipped stretches of these schedules that reach beyond `now`: schedule and first slot of each."""
    rows = await t.fetch_all(_sql.ahead, {"schedule_ids": array_literals.numbers(schedule_ids), "now": now})
    return [(row["schedule_id"], row["first_slot"]) for row in rows]


async def shorten(t: Tx, stretches: Sequence[Shortened]) -> None:
    """Lets stretches end earlier."""
    parameters = {
        "schedule_ids": array_literals.numbers(one.schedule_id for one in stretches),
        "firsts": array_literals.times(one.first for one in stretches),
        "lasts": array_literals.times(one.last for one in stretches),
        "slots": array_literals.numbers(one.slots for one in stretches),
    }
    await t.execute(_sql.shorten, parameters)


async def forget(t: Tx, stretches: Sequence[tuple[int, datetime]]) -> None:
    """Takes stretches (schedule, first slot) away: they have not begun."""
    parameters = {
        "schedule_ids": array_literals.numbers(schedule for schedule, _ in stretches),
        "firsts": array_literals.times(first for _, first in stretches),
    }
    await t.execute(_sql.forget, parameters)


async def last_fired(t: Tx, schedules: Mapping[int, str], after: datetime) -> dict[int, datetime]:
    """The latest slot after `after` that has a run, of each schedule (id, name) or of a deleted one of the same name; those that have one."""
    parameters = {
        "ids": array_literals.numbers(schedules),
        "names": array_literals.words(schedules.values()),
        "after": after,
    }
    return {row["id"]: row["slot"] for row in await t.fetch_all(_sql.last_fired, parameters)}


async def page(t: Tx, name: str, *, below: tuple[datetime, int], limit: int) -> list[Row]:
    """Rows of all schedules that have or had this name, latest slots first, below (first_slot, schedule_id)."""
    return await t.fetch_all(_sql.page, {"name": name, "below_slot": below[0], "below_id": below[1], "limit": limit})


async def known(t: Tx, name: str) -> bool:
    """Whether there is or was a schedule of this name."""
    row = await t.fetch_one(_sql.known, {"name": name})
    return bool(row and row["known"])
