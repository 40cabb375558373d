"""The lease of the one archiver that works, and the transactions that it fences (docs/fencing.md 3.3, with a row of its own)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from toban_domain.errors import FencedOut
from toban_store.pool import Pool
from toban_store.queries import load
from toban_store.tx import Tx, autocommit, tx

_Q = load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """The holder, and how the last pass ended. Texts are empty when there was no pass, or no error."""

    epoch: int
    holder: str
    held: bool
    beat_at: datetime
    last_pass_at: datetime | None
    last_pass: str
    last_error: str


@dataclass(frozen=True, slots=True)
class ArchiveTx:
    """A transaction of the archiver that holds the lease with `epoch`. Only `archive_tx` makes one."""

    t: Tx
    epoch: int


def fenced(epoch: int) -> FencedOut:
    """Another archiver has taken the lease since."""
    return FencedOut(epoch, of="archiver")


@asynccontextmanager
async def archive_tx(pool: Pool, epoch: int) -> AsyncIterator[ArchiveTx]:
    """A transaction as the holder of the lease. Raises FencedOut when another archiver has taken it, StoreError otherwise."""
    async with tx(pool) as t:
        if not await t.fetch_all(_Q.fence, {"epoch": epoch}):
            raise fenced(epoch)
        yield ArchiveTx(t, epoch)


async def take(pool: Pool, *, holder: str, lease_seconds: float) -> int | None:
    """The epoch of this archiver, or None while another one works. A holder that has not renewed for `lease_seconds` is replaced."""
    async with autocommit(pool) as t:
        row = await t.fetch_one(_Q.take, {"holder": holder, "lease_seconds": lease_seconds})
    return int(row["epoch"]) if row else None


async def renew(pool: Pool, epoch: int) -> None:
    """Records that the holder is alive. Raises FencedOut when another archiver has the lease."""
    async with autocommit(pool) as t:
        if await t.execute(_Q.renew, {"epoch": epoch}) != 1:
            raise fenced(epoch)


async def release(pool: Pool, epoch: int, *, summary: str, error: str) -> None:
    """Frees the lease at the end of a pass. Raises FencedOut when another archiver has it."""
    async with autocommit(pool) as t:
        if await t.execute(_Q.release, {"epoch": epoch, "summary": summary, "error": error}) != 1:
            raise fenced(epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTable:
    """The row, as `toban_fencing.archive_lease` uses it; `holder` is this archiver's name in it."""

    pool: Pool
    holder: str
    lease_seconds: float

    async def take(self) -> int | None:
        """See `take`."""
        return await take(self.pool, holder=self.holder, lease_seconds=self.lease_seconds)

    async def renew(self, epoch: int) -> None:
        """See `renew`."""
        await renew(self.pool, epoch)

    async def release(self, epoch: int, *, summary: str, error: str) -> None:
        """See `release`."""
        await release(self.pool, epoch, summary=summary, error=error)


async def read(t: Tx) -> LeaseRow:
    """The lease as it is now."""
    row = await t.fetch_one(_Q.read)
    if row is None:
        raise AssertionError("migration logs/0002 makes the only row, and nothing deletes it")
    return LeaseRow(**row)
