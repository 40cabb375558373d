"""The archive lease: one log-archiver moves logs at a time (docs/fencing.md 3.3). The row in PostgreSQL decides; this is the holder's side.

The holder renews the row while it works and frees it at the end. Where an outage keeps it from being freed, that is done before the next take. A
holder that was taken over finds out at its next fenced write.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from toban_domain.errors import FencedOut, TobanError

RENEW_SECONDS = 5.0


class LeaseRow(Protocol):
    """The row of the lease. A database that does not answer is another TobanError than FencedOut."""

    async def take(self) -> int | None:
        """The epoch of a new lease, or None while another archiver holds it."""

    async def renew(self, epoch: int) -> None:
        """The holder is alive. Raises FencedOut when another archiver has taken the lease."""

    async def release(self, epoch: int, *, summary: str, error: str) -> None:
        """Free the lease, with what the pass did. Raises FencedOut when another archiver has taken it."""


class ArchiveLease:
    """The lease as one process holds it, for one pass after the other."""

    def __init__(
        self,
        *,
        row: LeaseRow,
        lease_seconds: float,
        sleep: Callable[[float], Awaitable[None]],
        on_renew_error: Callable[[TobanError, float], None],
    ) -> None:
        self._row = row
        self._sleep = sleep
        self._on_renew_error = on_renew_error
        self._renew_seconds = min(RENEW_SECONDS, lease_seconds / 4)
        # A lease that an outage kept from being freed: epoch, summary, error.
        self._unreleased: tuple[int, str, str] | None = None

    async def take(self) -> int | None:
        """The epoch of this pass, or None while another archiver holds the lease. Raises what the row raises."""
        unreleased, self._unreleased = self._unreleased, None
        if unreleased is not None:
            epoch, summary, error = unreleased
            with suppress(FencedOut):
                await self.release(epoch, summary=summary, error=error)
        return await self._row.take()

    async def release(self, epoch: int, *, summary: str, error: str) -> None:
        """Free the lease. Raises FencedOut when another archiver has it; after any other error the next `take` frees it first."""
        try:
            await self._row.release(epoch, summary=summary, error=error)
        except FencedOut:
            raise
        except TobanError:
            self._unreleased = epoch, summary, error
            raise

    @asynccontextmanager
    async def renewed(self, epoch: int) -> AsyncIterator[None]:
        """Renews the lease in the background while the body runs."""
        renewing = asyncio.ensure_future(self._renew(epoch))
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def _renew(self, epoch: int) -> None:
        """Ends when another archiver has the lease: the next fenced write of the pass fails then."""
        while True:
            await self._sleep(self._renew_seconds)
            try:
                await self._row.renew(epoch)
            except FencedOut:
                return
            except TobanError as error:
                self._on_renew_error(error, self._renew_seconds)
