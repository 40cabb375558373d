"""Chunks of job output: append, page through, count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from operator import attrgetter
from typing import Any

from toban_store.queries import load
from toban_store.tx import Tx

_Q = load(__name__)
STREAMS = (1, 2, 3)
"""stdout, stderr, and the executor's own markers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChunk:
    """A checked chunk: `data` is a zstd frame, times are those of its first and last line, `raw_bytes` the text without newlines."""

    log_day: date
    run_id: int
    token: int
    stream: int
    seq_from: int
    seq_to: int
    line_count: int
    raw_bytes: int
    first_at: datetime
    last_at: datetime
    data: bytes

    @property
    def place(self) -> tuple[int, int, int, int]:
        """What names it: run, token, stream, first sequence number."""
        return self.run_id, self.token, self.stream, self.seq_from

    @property
    def range(self) -> tuple[int, int]:
        """What two chunks at one place must have in common: last sequence number and number of lines."""
        return self.seq_to, self.line_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """`new` chunks were stored; `different` are places where a chunk with another range stands (its seq_to): those lines are not stored."""

    new: int
    different: Mapping[tuple[int, int, int, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChunk:
    """One chunk as it is read."""

    stream: int
    seq_from: int
    seq_to: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPlace:
    """Where the chunks of one token are."""

    log_day: date
    run_id: int
    token: int

    def params(self) -> dict[str, Any]:
        """As query parameters."""
        return {"log_day": self.log_day, "run_id": self.run_id, "token": self.token}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSize:
    """What is stored of one token."""

    lines: int
    raw_bytes: int
    last_seq: int


async def append(t: Tx, chunks: Sequence[NewChunk]) -> Appended:
    """Stores chunks, each once. They are inserted in key order, so that two archivers with the same chunks do not deadlock."""
    if not chunks:
        return Appended(new=0, different={})
    first: dict[tuple[int, int, int, int], NewChunk] = {}
    for chunk in chunks:
        first.setdefault(chunk.place, chunk)
    ordered = sorted(first.values(), key=attrgetter("place"))
    params = {name: [getattr(chunk, name) for chunk in ordered] for name in NewChunk.__dataclass_fields__}
    new = await t.execute(_Q.append, params)
    different = {c.place: first[c.place].seq_to for c in chunks if c.range != first[c.place].range}
    if new < len(ordered):
        for row in await t.fetch_all(_Q.different, params):
            different[(row["run_id"], row["token"], row["stream"], row["seq_from"])] = row["seq_to"]
    return Appended(new=new, different=different)


async def page(t: Tx, place: TokenPlace, *, after: Mapping[int, int], size: int) -> list[StoredChunk]:
    """At most `size` chunks that begin after `after[stream]`, ordered by first line; a stream that `after` lacks is left out."""
    # No sequence number is larger: that stream's scan finds nothing.
    positions = {f"after_{stream}": after.get(stream, (1 << 63) - 1) for stream in STREAMS}
    rows = await t.fetch_all(_Q.page, {**place.params(), **positions, "size": size})
    return [StoredChunk(**row) for row in rows]


async def start_positions(t: Tx, place: TokenPlace, *, seq: int) -> dict[int, int]:
    """For each stream the position (`page`'s `after`) from which no line from `seq` on is missed."""
    rows = await t.fetch_all(_Q.begins, {**place.params(), "seq": seq})
    return {row["stream"]: (row["seq_from"] or 1) - 1 for row in rows}


async def last_heads(t: Tx, place: TokenPlace, *, streams: Sequence[int], size: int) -> list[tuple[int, int]]:
    """(seq_from, line_count) of the last `size` chunks, latest first."""
    rows = await t.fetch_all(_Q.last_heads, {**place.params(), "streams": list(streams), "size": size})
    return [(row["seq_from"], row["line_count"]) for row in rows]


async def sizes(t: Tx, run_id: int, *, streams: Sequence[int] = STREAMS) -> dict[int, TokenSize]:
    """What is stored of each token of a run."""
    rows = await t.fetch_all(_Q.sizes, {"run_id": run_id, "streams": list(streams)})
    return {
        row["token"]: TokenSize(lines=row["lines"], raw_bytes=row["raw_bytes"], last_seq=row["last_seq"])
        for row in rows
    }
