"""Chunks of job output: append, page through, count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from operator import attrgetter
from typing import Any

from toban_log_archiver.decide.line import STREAMS
from toban_log_archiver.decide.stored_chunks import (
    ALWAYS,
    ChunkHead,
    NewChunk,
    StoredChunk,
    TimeSpan,
    TokenPlace,
    TokenSize,
)
from toban_store.array_literals import numbers, times, words
from toban_store.queries import load
from toban_store.tx import Tx

_Q = load(__name__)
# PostgreSQL's code for a row without a partition too, and then it names no constraint.


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """`new` chunks were stored; `different` are places that hold a chunk with another range (its seq_to): those lines are not stored."""

    new: int
    different: Mapping[tuple[int, int, int, int], int]


async def append(t: Tx, chunks: Sequence[NewChunk]) -> Appended:
    """Stores chunks, each once. They are inserted in key order, so that two archivers with the same chunks do not deadlock."""
    if not chunks:
        return Appended(new=0, different={})
    first: dict[tuple[int, int, int, int], NewChunk] = {}
    for chunk in chunks:
        first.setdefault(chunk.place, chunk)
    ordered = sorted(first.values(), key=attrgetter("place"))
    params = {name: literal([getattr(chunk, name) for chunk in ordered]) for name, literal in _LITERALS.items()}
    new = await t.execute(_Q.append, params)
    different = {c.place: first[c.place].seq_to for c in chunks if c.range != first[c.place].range}
    if new < len(ordered):
        for row in await t.fetch_all(_Q.different, params):
            different[(row["run_id"], row["token"], row["stream"], row["seq_from"])] = row["seq_to"]
    return Appended(new=new, different=different)


async def held(t: Tx, wanted: Sequence[NewChunk]) -> set[tuple[int, int, int, int]]:
    """Those places of `wanted` where a chunk is stored, in the database or the archive."""
    names = ("log_day", "run_id", "token", "stream", "seq_from")
    rows = await t.fetch_all(_Q.held, {name: _LITERALS[name]([getattr(one, name) for one in wanted]) for name in names})
    return {(row["run_id"], row["token"], row["stream"], row["seq_from"]) for row in rows}


async def page(
    t: Tx, place: TokenPlace, *, after: Mapping[int, int], size: int, span: TimeSpan = ALWAYS
) -> list[StoredChunk]:
    """At most `size` chunks that begin after `after[stream]`, ordered by first line; a stream that `after` lacks is left out.

    Chunks that have no line within `span` are left out too; their data is not read.
    """
    bounds = {"since": span.since, "until": span.until}
    rows = await t.fetch_all(_Q.page, {**place.parameters, **_positions(after), **bounds, "size": size})
    return [StoredChunk(**row) for row in rows]


async def starts(t: Tx, place: TokenPlace, *, seq: int) -> dict[int, int]:
    """For each stream the largest seq_from that is not above `seq`; nothing for a stream that has none."""
    rows = await t.fetch_all(_Q.starts, {**place.parameters, "seq": seq})
    return {row["stream"]: row["seq_from"] for row in rows if row["seq_from"] is not None}


async def heads(t: Tx, place: TokenPlace, *, streams: Sequence[int], before: int, size: int) -> list[ChunkHead]:
    """At most `size` chunks that begin before `before`, the last one first."""
    befores = {f"before_{stream}": before if stream in streams else 0 for stream in STREAMS}
    rows = await t.fetch_all(_Q.heads, {**place.parameters, **befores, "size": size})
    return [ChunkHead(**row) for row in rows]


async def heads_after(t: Tx, place: TokenPlace, *, after: Mapping[int, int], size: int) -> list[ChunkHead]:
    """As `page` without a span, and without the lines."""
    rows = await t.fetch_all(_Q.heads_after, {**place.parameters, **_positions(after), "size": size})
    return [ChunkHead(**row) for row in rows]


async def sizes(t: Tx, run_id: int) -> dict[int, TokenSize]:
    """What is stored of each token of a run."""
    rows = await t.fetch_all(_Q.sizes, {"run_id": run_id})
    return {
        row["token"]: TokenSize(lines=row["lines"], raw_bytes=row["raw_bytes"], last_seq=row["last_seq"])
        for row in rows
    }


def _days(items: Iterable[date]) -> str:
    return words(day.isoformat() for day in items)


_LITERALS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("run_id", "token", "stream", "seq_from", "seq_to", "line_count", "raw_bytes"), numbers),
    **dict.fromkeys(("first_at", "last_at"), times),
    "log_day": _days,
    "data": list,
}


def _positions(after: Mapping[int, int]) -> dict[str, int]:
    # No sequence number is larger: the scan of a stream that is left out finds nothing.
    return {f"after_{stream}": after.get(stream, (1 << 63) - 1) for stream in STREAMS}
