"""Chunks as the manifest knows them: the archive's half of what readers ask. Only verified objects have manifest rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toban_log_archiver.decide.stored_chunks import ChunkHead, TimeSpan, TokenPlace, TokenSize
from toban_store.queries import load
from toban_store.tx import Tx

_Q = load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePlace:
    """An archived chunk: its frame is `byte_length` bytes from `byte_offset` on in the object `key`, with this SHA-256."""

    stream: int
    seq_from: int
    seq_to: int
    key: str
    byte_offset: int
    byte_length: int
    sha256: bytes


async def page(t: Tx, place: TokenPlace, *, after: Mapping[int, int], size: int, span: TimeSpan) -> list[FramePlace]:
    """At most `size` chunks that begin after `after[stream]`, in order; of two that begin at one line, the longer one."""
    positions = {"streams": list(after), "after": list(after.values())}
    bounds = {"since": span.since, "until": span.until, "size": size}
    return [FramePlace(**row) for row in await t.fetch_all(_Q.page, {**place.parameters, **positions, **bounds})]


async def starts(t: Tx, place: TokenPlace, *, seq: int) -> dict[int, int]:
    """For each stream that has one: the first line of the chunk that holds `seq` or is the last before it."""
    rows = await t.fetch_all(_Q.starts, {**place.parameters, "seq": seq})
    return {row["stream"]: row["seq_from"] for row in rows if row["seq_from"] is not None}


async def heads(t: Tx, place: TokenPlace, *, streams: Sequence[int], before: int, size: int) -> list[ChunkHead]:
    """At most `size` chunks of these streams that begin before `before`, the last one first."""
    params = {**place.parameters, "streams": list(streams), "before": before, "size": size}
    return [ChunkHead(**row) for row in await t.fetch_all(_Q.heads, params)]


async def heads_after(t: Tx, place: TokenPlace, *, after: Mapping[int, int], size: int) -> list[ChunkHead]:
    """As `page` for any time, without the places of the frames."""
    params = {**place.parameters, "streams": list(after), "after": list(after.values()), "size": size}
    return [ChunkHead(**row) for row in await t.fetch_all(_Q.heads_after, params)]


async def sizes(t: Tx, run_id: int) -> dict[int, TokenSize]:
    """What is archived of each token of a run."""
    rows = await t.fetch_all(_Q.sizes, {"run_id": run_id})
    return {
        row["token"]: TokenSize(lines=row["lines"], raw_bytes=row["raw_bytes"], last_seq=row["last_seq"])
        for row in rows
    }


async def expired(t: Tx, run_ids: Sequence[int]) -> dict[tuple[int, int], int]:
    """For each (run, token) of these runs that has some: how many lines have left the archive."""
    rows = await t.fetch_all(_Q.expired, {"run_ids": list(run_ids)})
    return {(row["run_id"], row["token"]): row["lines"] for row in rows}


async def has_expired(t: Tx, key: str) -> bool:
    """Whether the object `key` has expired, so that readers skip it."""
    row = await t.fetch_one(_Q.has_expired, {"key": key})
    return bool(row and row["expired"])


async def touched(t: Tx, run_ids: Sequence[int], *, streams: Sequence[int], span: TimeSpan) -> list[TokenPlace]:
    """Tokens of these runs with a chunk of these streams within `span`, by run and token."""
    params = {"run_ids": list(run_ids), "streams": list(streams), "since": span.since, "until": span.until}
    return [TokenPlace(**row) for row in await t.fetch_all(_Q.touched, params)]


async def places(t: Tx, run_id: int) -> dict[int, list[str]]:
    """The keys of the objects that hold each token of a run, in the order of their first lines."""
    found: dict[int, list[str]] = defaultdict(list)
    for row in await t.fetch_all(_Q.places, {"run_id": run_id}):
        found[row["token"]].append(row["key"])
    return dict(found)
