"""Reads of the archiver. Those of whole days may take longer than other statements: `long_query_tx` gives them time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from operator import attrgetter

from toban_log_archiver.store.archive import LONG_SECONDS, FrameRow
from toban_store.pool import Pool
from toban_store.queries import load
from toban_store.tx import Tx, tx

_Q = load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """A token, and how many of its chunks (with so many bytes) are in no verified object. `ready`: it may be archived now.

    `lines` are those in the database, `system_chunks` its chunks there that hold lines of the executor.
    """

    run_id: int
    token: int
    incarnation: str
    last_seq: int | None
    incomplete: bool
    chunks: int
    bytes: int
    lines: int
    system_chunks: int
    ready: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFacts:
    """A chunk without its data; `byte_length` is that of its frame."""

    run_id: int
    token: int
    stream: int
    seq_from: int
    seq_to: int
    line_count: int
    raw_bytes: int
    byte_length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRow:
    """An object as it is written down; `state` is planned, stored or verified."""

    id: int
    key: str
    log_day: date
    sha256: bytes
    bytes: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DayStored:
    """What of a day is in the database; `open_chunks` are in no verified object."""

    chunks: int
    bytes: int
    open_chunks: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DayArchived:
    """What of a day is in verified objects; `bytes` is the length of the objects. What has expired counts apart."""

    log_day: date
    objects: int
    bytes: int
    tokens: int
    chunks: int
    lines: int
    expired_objects: int
    expired_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Bytes in the database with indexes: of `chunks`, which archiving frees, and of the rows about attempts and objects."""

    chunks: int
    bookkeeping: int


@asynccontextmanager
async def long_query_tx(pool: Pool) -> AsyncIterator[Tx]:
    """A transaction for reads of a whole day: a statement may take LONG_SECONDS, and so may the processing of its rows."""
    async with tx(pool) as t:
        await t.allow_seconds(LONG_SECONDS)
        yield t


async def days(t: Tx, *, retention_days: int) -> list[tuple[date, bool]]:
    """Days with chunks in the database, the oldest first, and whether they are older than their retention."""
    return [(row["day"], row["due"]) for row in await t.fetch_all(_Q.days, {"retention_days": retention_days})]


async def tokens(t: Tx, log_day: date, *, after: tuple[int, int], size: int, wait_seconds: float) -> list[TokenFacts]:
    """At most `size` tokens of a day after a (run, token). A sealed one whose lines are not all here is ready `wait_seconds` after its seal."""
    place = {"log_day": log_day, "after_run": after[0], "after_token": after[1]}
    rows = await t.fetch_all(_Q.tokens, {**place, "size": size, "wait_seconds": wait_seconds})
    return [TokenFacts(**row) for row in rows]


async def chunks(t: Tx, log_day: date, wanted: Sequence[TokenFacts]) -> list[ChunkFacts]:
    """Every chunk of some tokens that is in no verified object: token by token, in order of first lines."""
    columns = {name: list(map(attrgetter(name), wanted)) for name in ("run_id", "token")}
    return [ChunkFacts(**row) for row in await t.fetch_all(_Q.chunks, {**columns, "log_day": log_day})]


async def data(t: Tx, log_day: date, wanted: Sequence[ChunkFacts]) -> list[bytes]:
    """The frames of `wanted` in that order; fewer when one is not there."""
    columns = {name: list(map(attrgetter(name), wanted)) for name in ("run_id", "token", "stream", "seq_from")}
    return [row["data"] for row in await t.fetch_all(_Q.data, {**columns, "log_day": log_day})]


async def system_frames(
    t: Tx, log_day: date, *, run_id: int, token: int, after: int, size: int
) -> list[tuple[int, bytes]]:
    """(first line, frame) of at most `size` chunks with lines of the executor itself that begin after the line `after`, in order."""
    params = {"log_day": log_day, "run_id": run_id, "token": token, "after": after, "size": size}
    return [(row["seq_from"], row["data"]) for row in await t.fetch_all(_Q.system_frames, params)]


async def open_tokens(t: Tx, log_day: date, *, after: tuple[int, int], size: int) -> list[tuple[int, int]]:
    """At most `size` (run, token) of a day that are not sealed."""
    params = {"log_day": log_day, "after_run": after[0], "after_token": after[1], "size": size}
    return [(row["run_id"], row["token"]) for row in await t.fetch_all(_Q.open_tokens, params)]


async def unfinished(t: Tx, *, size: int) -> list[ObjectRow]:
    """Objects that were begun and never verified, the oldest first."""
    return [ObjectRow(**row) for row in await t.fetch_all(_Q.unfinished, {"size": size})]


async def verified(t: Tx, *, log_day: date | None, after: int, size: int) -> list[ObjectRow]:
    """Verified objects of one day, or of all, with a larger id than `after`."""
    return [
        ObjectRow(**row) for row in await t.fetch_all(_Q.verified, {"log_day": log_day, "after": after, "size": size})
    ]


async def frames(t: Tx, object_id: int) -> list[FrameRow]:
    """The manifest rows of an object in the order of their places."""
    return [FrameRow(**row) for row in await t.fetch_all(_Q.frames, {"object_id": object_id})]


async def stored_day(t: Tx, log_day: date) -> DayStored:
    """What of a day is in the database."""
    row = await t.fetch_one(_Q.stored_day, {"log_day": log_day})
    if row is None:
        raise AssertionError("an aggregate has one row")
    return DayStored(**row)


async def has_open(t: Tx, log_day: date) -> bool:
    """Whether a chunk of that day is in no verified object."""
    row = await t.fetch_one(_Q.has_open, {"log_day": log_day})
    return bool(row and row["open"])


async def archived_days(t: Tx) -> list[DayArchived]:
    """What is archived, day by day."""
    return [DayArchived(**row) for row in await t.fetch_all(_Q.archived_days)]


async def volume(t: Tx) -> Volume:
    """Bytes of schema logs in the database."""
    row = await t.fetch_one(_Q.volume)
    if row is None:
        raise AssertionError("an aggregate has one row")
    return Volume(**row)
