"""Operations.VerifyAudit and loop `audit`: the hash chain of the audit is checked, part by part from the oldest row on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from toban_coordinator.store.cluster import audit
from toban_coordinator.store.cluster.audit import ChainPart
from toban_domain.audit_chain import START, Mark, Problem, check_links
from toban_domain.errors import ErrorCode, TobanError
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit

# Rows that one call checks, and how many of them are read at a time; the same in bytes, beyond one row, since a row holds whole manifests.
PART_ROWS = 20_000
READ_ROWS = 2_000
READ_BYTES = 4 * 2**20
PART_BYTES = 10 * READ_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What one part of a verification found in so many rows of `size` bytes. `after`: where the next one begins, None = this was the last one.

    `anchor` is the row before the oldest one that is kept, `head` the newest one of the chain.
    """

    problems: Sequence[Problem]
    rows: int
    size: int
    after: Mark | None
    anchor: Mark
    head: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified(Checked):
    """The same, with the rows that are not chained yet and the age of the oldest of them, seconds."""

    unchained: int
    unchained_seconds: float


async def check_part(t: Tx, after: Mark, *, limit: int) -> Checked:
    """Checks the rows behind `after`, START for the first part: one statement, and one call of a thread."""
    part = await audit.links(t, after, limit=limit, max_bytes=READ_BYTES)
    if part is None:
        message = "the ends of the hash chain (rows of scheduler.audit_chain) were removed, so no row can be verified"
        return Checked(
            problems=[Problem("removed", 0, 0, message)], rows=0, size=0, after=None, anchor=START, head=START
        )
    found, last = await asyncio.to_thread(_check, part)
    if after == START and part.stray is not None:
        message = f"row {part.stray} is before the beginning of the chain, {part.anchor.seq + 1}"
        found.insert(0, Problem("inserted", part.stray, part.stray, message))
    end = None if part.complete else last
    return Checked(problems=found, rows=part.rows, size=len(part.page), after=end, anchor=part.anchor, head=part.head)


def _check(part: ChainPart) -> tuple[list[Problem], Mark]:
    """What is wrong with the rows, and the last one of them."""
    links = part.links()
    return check_links(part.previous, links, head=part.head, complete=part.complete), (
        links[-1].mark if links else part.previous
    )


async def verify_part(pool: Pool, *, cursor: str, known_head: str) -> Verified:
    """Checks the next rows. `cursor` "" = from the oldest one; `known_head` is an end of the chain that was noted outside, "" = none.

    Raises INVALID_ARGUMENT for a cursor or head that is none.
    """
    after, known = _mark("cursor", cursor), _mark("head", known_head)
    rows, size, problems = 0, 0, list[Problem]()
    async with autocommit(pool) as t:
        if known_head and not cursor:
            problems += await _check_known(t, known)
        while True:
            part = await check_part(t, after, limit=READ_ROWS)
            rows += part.rows
            size += part.size
            problems += part.problems
            if part.after is None or rows >= PART_ROWS or size >= PART_BYTES:
                break
            after = part.after
        unchained, seconds = await audit.unchained(t)
    return Verified(
        problems=problems,
        rows=rows,
        size=size,
        after=part.after,
        anchor=part.anchor,
        head=part.head,
        unchained=unchained,
        unchained_seconds=seconds,
    )


async def _check_known(t: Tx, known: Mark) -> list[Problem]:
    part = await audit.links(t, START, limit=1, max_bytes=0)
    if part is None:
        return []
    anchor = part.anchor
    if known.seq < anchor.seq:
        message = f"row {known.seq} is older than what is kept, {anchor.seq + 1} and later; give a newer head"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    found = anchor.hash if known.seq == anchor.seq else await audit.hash_at(t, known.seq)
    if found == known.hash:
        return []
    if found is None:
        return [Problem("removed", known.seq, known.seq, f"row {known.seq}, the head that was noted, is missing")]
    message = f"row {known.seq} has another hash than the head that was noted: the chain was written again"
    return [Problem("changed", known.seq, known.seq, message)]


def _mark(name: str, text: str) -> Mark:
    try:
        return Mark.parse(text) if text else START
    except ValueError:
        message = f"{name} {text[:100]!r} is not of the form SEQ:HASH, as `toban audit verify` prints it"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message) from None
