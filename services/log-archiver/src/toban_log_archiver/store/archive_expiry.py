"""What leaves the archive because it is old enough: marked, deleted, forgotten. Functions that write take the fenced ArchiveTx."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from toban_log_archiver.store.archive_lease import ArchiveTx, fenced
from toban_store.queries import load
from toban_store.tx import Tx

_Q = load(__name__)
# Manifest rows that go in one statement.
FORGET_ROWS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringDay:
    """A day whose objects are old enough, and what is in them; `marked` of them are marked, `ready` of these for long enough."""

    log_day: date
    marked: int
    ready: int
    objects: int
    bytes: int
    tokens: int
    chunks: int
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredObject:
    """An object whose lines are not read any more, and which may still be in the bucket."""

    id: int
    key: str
    log_day: date
    bytes: int
    tokens: int
    chunks: int
    lines: int


async def days(t: Tx, *, before: date, grace_seconds: float) -> list[ExpiringDay]:
    """Days before `before` with objects that have not expired, the oldest first. A day with chunks in the database is not among them."""
    rows = await t.fetch_all(_Q.days, {"before": before, "grace_seconds": grace_seconds})
    return [ExpiringDay(**row) for row in rows]


async def mark(a: ArchiveTx, log_day: date) -> int:
    """Every object of the day may expire once its mark is old enough; how many were marked. They are read as before."""
    return await a.t.execute(_Q.mark, {"log_day": log_day, "epoch": a.epoch})


async def unmark(a: ArchiveTx, *, before: date | None) -> int:
    """Removes the marks of what has not expired and is not of a day before `before` (None: of any day); how many."""
    return await a.t.execute(_Q.unmark, {"before": before, "epoch": a.epoch})


async def expire(a: ArchiveTx, log_day: date, *, grace_seconds: float) -> int:
    """Readers skip the objects of the day that were marked `grace_seconds` ago, for good; how many."""
    return await a.t.execute(_Q.expire, {"log_day": log_day, "grace_seconds": grace_seconds, "epoch": a.epoch})


async def waiting(t: Tx, *, after: int, size: int) -> list[ExpiredObject]:
    """At most `size` expired objects with a larger id than `after` that may still be in the bucket."""
    return [ExpiredObject(**row) for row in await t.fetch_all(_Q.waiting, {"after": after, "size": size})]


async def waiting_count(t: Tx) -> int:
    """How many expired objects may still be in the bucket."""
    row = await t.fetch_one(_Q.waiting_count)
    return int(row["waiting"]) if row else 0


async def deleted(a: ArchiveTx, object_id: int) -> None:
    """The object is not in the bucket any more; nothing happens when that is known."""
    await a.t.execute(_Q.deleted, {"id": object_id, "epoch": a.epoch})


async def forgettable(t: Tx, *, before: date, size: int) -> list[int]:
    """At most `size` deleted objects of days before `before`."""
    return [row["id"] for row in await t.fetch_all(_Q.forgettable, {"before": before, "size": size})]


async def forget_object(a: ArchiveTx, object_id: int) -> bool:
    """Removes some manifest rows of a deleted object, and its own with the last; False: there are more."""
    if await a.t.execute(_Q.forget_frames, {"id": object_id, "size": FORGET_ROWS}) == FORGET_ROWS:
        return False
    await a.t.execute(_Q.forget_object, {"id": object_id})
    return True


async def token_days(t: Tx, *, before: date) -> list[date]:
    """Days before `before` of which nothing but the rows of attempts is left."""
    return [row["day"] for row in await t.fetch_all(_Q.token_days, {"before": before})]


async def forget_day(a: ArchiveTx, log_day: date) -> bool:
    """Drops the rows of a day's attempts; False when something of the day is left. Raises TooLong while the table is in use."""
    row = await a.t.fetch_one(_Q.forget_day, {"log_day": log_day, "epoch": a.epoch})
    result = row["result"] if row else "fenced"
    if result == "fenced":
        raise fenced(a.epoch)
    return bool(result == "forgotten")
