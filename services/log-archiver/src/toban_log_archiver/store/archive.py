"""What the archiver records: objects, manifest rows, seals, dropped days. Every function takes the fenced ArchiveTx."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from toban_log_archiver.store.archive_lease import ArchiveTx, fenced
from toban_store.queries import load

_Q = load(__name__)
# Frames that PostgreSQL hashes in one statement.
COVER_ROWS = 500
COVER_BYTES = 8 * 1024 * 1024
# How long a statement may take that reads a whole day.
LONG_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewObject:
    """An object that is about to be put; `bytes` is its whole length."""

    key: str
    log_day: date
    sha256: bytes
    bytes: int
    token_count: int
    chunk_count: int
    line_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRow:
    """One chunk in an object: `byte_length` bytes from `byte_offset` on, with this SHA-256."""

    run_id: int
    token: int
    stream: int
    seq_from: int
    seq_to: int
    line_count: int
    byte_offset: int
    byte_length: int
    sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The row of an unfinished object, and whether it was put already."""

    id: int
    stored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedToken:
    """A token that will not seal itself; `last_seq` is None when its end is unknown."""

    run_id: int
    token: int
    last_seq: int | None


async def plan(a: ArchiveTx, new: NewObject) -> Planned | None:
    """Records that `new` will be put; None when the same content is verified already."""
    params = {name: getattr(new, name) for name in NewObject.__dataclass_fields__}
    row = await a.t.fetch_one(_Q.plan, {**params, "epoch": a.epoch})
    return Planned(id=row["id"], stored=row["state"] != "planned") if row else None


async def stored(a: ArchiveTx, object_id: int) -> None:
    """The object is in the bucket; nothing happens to one that is known to be there."""
    await a.t.execute(_Q.stored, {"id": object_id, "epoch": a.epoch})


async def cover(a: ArchiveTx, object_id: int, log_day: date, frames: Sequence[FrameRow]) -> int:
    """Manifest rows for `frames`; how many are in logs.chunks with exactly these values and were not covered before."""
    covered = 0
    for batch in _batches(frames):
        columns = {name: [getattr(frame, name) for frame in batch] for name in FrameRow.__dataclass_fields__}
        covered += await a.t.execute(_Q.cover, {**columns, "object_id": object_id, "log_day": log_day})
    return covered


async def verified(a: ArchiveTx, object_id: int) -> bool:
    """The object counts from now on; False (and nothing is written) when its manifest lacks a chunk or a line."""
    return await a.t.execute(_Q.verified, {"id": object_id, "epoch": a.epoch}) == 1


async def forget(a: ArchiveTx, object_id: int) -> None:
    """Removes the row of an object that was never verified."""
    await a.t.execute(_Q.forget, {"id": object_id})


async def seal(a: ArchiveTx, log_day: date, ended: Sequence[EndedToken]) -> int:
    """Seals tokens that are still open; how many."""
    columns = {name: [getattr(one, name) for one in ended] for name in EndedToken.__dataclass_fields__}
    return await a.t.execute(_Q.seal, {**columns, "log_day": log_day}) if ended else 0


async def drop_day(a: ArchiveTx, log_day: date) -> bool:
    """Drops the chunks of a day; False when some are not covered, or there are none. Raises TooLong while the table is in use."""
    # The statement reads every chunk of the day.
    await a.t.allow_seconds(LONG_SECONDS)
    row = await a.t.fetch_one(_Q.drop_day, {"log_day": log_day, "epoch": a.epoch})
    result = row["result"] if row else "fenced"
    if result == "fenced":
        raise fenced(a.epoch)
    return bool(result == "dropped")


def _batches(frames: Sequence[FrameRow]) -> list[list[FrameRow]]:
    batches: list[list[FrameRow]] = []
    size = 0
    for frame in frames:
        size += frame.byte_length
        if not batches or len(batches[-1]) >= COVER_ROWS or size > COVER_BYTES:
            batches.append([])
            size = frame.byte_length
        batches[-1].append(frame)
    return batches
