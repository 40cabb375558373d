"""The hash chain over the audit: the hash of a row covers its values and the hash of the row before. Pure.

`scheduler.chain_audit` of the schema computes the same hashes in PostgreSQL; this module checks them, in a coordinator and of an exported file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the chain: a row and its hash."""

    seq: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash.hex()}"

    @classmethod
    def parse(cls, text: str) -> Mark:
        """From `SEQ:HASH`, as `str` writes it. Raises ValueError."""
        seq, _, digest = text.strip().partition(":")
        mark = cls(int(seq), bytes.fromhex(digest))
        if mark.seq < 0 or len(mark.hash) != HASH_BYTES:
            raise ValueError(f"{text[:100]!r} is no number and hash of a row")
        return mark


START = Mark(0, bytes(HASH_BYTES))
"""Before the first row."""


class LinkText(NamedTuple):
    """One chained row by the text that its hash covers, as PostgreSQL writes it."""

    seq: int
    hash: bytes
    text: bytes

    @property
    def mark(self) -> Mark:
        """Its place in the chain."""
        return Mark(self.seq, self.hash)

    def hash_after(self, previous: bytes) -> bytes:
        """The hash that this row has to have behind a row with hash `previous`."""
        return hashlib.sha256(previous + self.text).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One chained row by its values. `before` and `after` are JSON as PostgreSQL writes it, "" = none."""

    seq: int
    id: int
    at: datetime
    actor: str
    action: str
    target: str
    before: str
    after: str
    reason: str
    address: str
    service: str
    hash: bytes

    @property
    def mark(self) -> Mark:
        """Its place in the chain."""
        return Mark(self.seq, self.hash)

    def hash_after(self, previous: bytes) -> bytes:
        """The hash that this row has to have behind a row with hash `previous`."""
        at = str((self.at - _EPOCH) // _MICROSECOND)
        numbers = (str(self.seq), str(self.id), at)
        texts = (self.actor, self.action, self.target, self.before, self.after, self.reason, self.address, self.service)
        # With its length before it, no value runs into the next one.
        parts = [part.encode() for part in (*numbers, *texts)]
        return hashlib.sha256(previous + b",".join(b"%d:%b" % (len(part), part) for part in parts)).digest()


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with rows `first` to `last`. `kind`: changed, removed, inserted."""

    kind: str
    first: int
    last: int
    message: str


def check_links(previous: Mark, links: Sequence[Link | LinkText], *, head: Mark, complete: bool) -> list[Problem]:
    """What is wrong with `links`, which follow `previous` in the order of their numbers; `complete`: no row comes after them.

    `head` is the newest row that the chain says it has.
    """
    found: list[Problem] = []
    for link in links:
        if link.seq > head.seq:
            found.append(
                Problem("inserted", link.seq, link.seq, f"row {link.seq} is beyond the end of the chain, {head.seq}")
            )
        elif link.seq != previous.seq + 1:
            # Its own hash cannot be checked without the row before.
            found.append(_removed(previous.seq + 1, link.seq - 1))
        elif link.hash_after(previous.hash) != link.hash:
            message = f"row {link.seq} does not fit its hash: it was changed, or the row before it was replaced"
            found.append(Problem("changed", link.seq, link.seq, message))
        previous = link.mark
    if complete and previous.seq < head.seq:
        found.append(_removed(previous.seq + 1, head.seq))
    elif complete and previous.seq == head.seq and previous.hash != head.hash:
        message = f"row {head.seq}, the last one, does not have the hash that was noted for the end of the chain"
        found.append(Problem("changed", head.seq, head.seq, message))
    return found


def _removed(first: int, last: int) -> Problem:
    rows = f"row {first} is" if first == last else f"rows {first} to {last} are"
    return Problem("removed", first, last, f"{rows} missing")
