"""Compares the objects of the archive with their manifests."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import date

from toban_domain.errors import TobanError
from toban_log_archiver.ports.object_store import ObjectStore
from toban_log_archiver.store import archive_reads
from toban_log_archiver.store.archive import FrameRow
from toban_log_archiver.store.archive_reads import ObjectRow
from toban_store.pool import Pool
from toban_store.tx import autocommit

OBJECTS_PAGE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedObject:
    """An object that was read from end to end; `problem` is empty when it is what the manifest says."""

    row: ObjectRow
    chunks: int
    problem: str


async def verify_objects(
    pool: Pool, store: ObjectStore, *, log_day: date | None, after: int = 0
) -> AsyncGenerator[VerifiedObject, None]:
    """Every object above the number `after`, of a day or of all days. One that cannot be read has a problem. Raises StoreError."""
    while True:
        async with autocommit(pool) as t:
            page = await archive_reads.verified(t, log_day=log_day, after=after, size=OBJECTS_PAGE)
        for row in page:
            async with archive_reads.long_query_tx(pool) as t:
                frames = await archive_reads.frames(t, row.id)
            try:
                problem = await _problem(store, row, frames)
            except TobanError as error:
                problem = error.message
            yield VerifiedObject(row=row, chunks=len(frames), problem=problem)
        if len(page) < OBJECTS_PAGE:
            return
        after = page[-1].id


async def _problem(store: ObjectStore, row: ObjectRow, frames: list[FrameRow]) -> str:
    found = await store.digest(row.key)
    if found is None:
        return "the object is not there"
    if found.length != row.bytes:
        return f"it has {found.length} bytes; {row.bytes} were written"
    if found.sha256 != row.sha256:
        return f"its SHA-256 is {found.sha256.hex()}; what was written had {row.sha256.hex()}"
    body = await store.read(row.key, 0, row.bytes)
    wrong = await asyncio.to_thread(_wrong_frames, body, frames)
    return f"{wrong} of {len(frames)} chunks are not where the manifest says" if wrong else ""


def _wrong_frames(body: bytes, frames: list[FrameRow]) -> int:
    view = memoryview(body)
    return sum(
        hashlib.sha256(view[one.byte_offset : one.byte_offset + one.byte_length]).digest() != one.sha256
        for one in frames
    )
