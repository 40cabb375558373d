"""Settings as stored, over the defaults of toban_domain.settings; how each process sees them; and how one is changed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime

from toban_domain.errors import TobanError
from toban_domain.settings import Settings
from toban_observability import metrics
from toban_runtime.clock import Clock
from toban_store import queries
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit

_sql = queries.load(__name__)
CACHE_SECONDS = 1.0
WAKE = "settings"
"""The payload of the notification that comes with each change."""
_version = metrics.gauge(
    "toban_settings_version", "Version of the settings that this process uses: the number of changes so far."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A setting that was changed once or more; `value` is whatever was stored."""

    value: object
    version: int
    updated_at: datetime
    updated_by: str


async def read(t: Tx) -> Settings:
    """All settings now. A stored value that this release does not allow is left out in favour of the default."""
    return settings_of(await stored(t))


async def stored(t: Tx) -> dict[str, Stored]:
    """What is stored, by name."""
    rows = await t.fetch_all(_sql.stored)
    return {row.pop("name"): Stored(**row) for row in rows}


def settings_of(rows: dict[str, Stored]) -> Settings:
    """The settings that these rows make."""
    values = {name: row.value for name, row in rows.items()}
    return Settings.tolerant(values, version=sum(row.version for row in rows.values()))


async def lock(t: Tx) -> None:
    """One change at a time until the end of the transaction: settings are judged together."""
    await t.execute(_sql.lock_changes)


async def store(t: Tx, name: str, value: float, *, version: int, actor: str) -> Stored | None:
    """Set `name` when its version is still `version` (0 = never changed) and tell every process; None when it is not."""
    params = {"name": name, "value": json.dumps(value), "version": version, "actor": actor}
    row = await t.fetch_one(_sql.create if version == 0 else _sql.change, params)
    if row is None:
        return None
    await t.notify(WAKE)
    return Stored(**row)


class SettingsCache:
    """The settings, at most CACHE_SECONDS old while PostgreSQL answers; the last known ones while it does not.

    `refresh` is the body of a loop with a tick of CACHE_SECONDS that a notification wakes.
    """

    def __init__(self, *, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._known: Settings | None = None
        self._answered = False
        self._read_at = 0.0
        self._changed = asyncio.Event()

    @property
    def known(self) -> Settings:
        """The settings as last read, without waiting; defaults when PostgreSQL has never answered."""
        return self._known or Settings()

    async def get(self) -> Settings:
        """The settings; never fails."""
        if self._known is None or self._clock.monotonic() - self._read_at >= CACHE_SECONDS:
            await self.refresh()
        return self.known

    async def get_verified(self, name: str) -> float | None:
        """The value for what cannot be undone: as PostgreSQL has it now. None when it does not answer, or what it has stored is not allowed."""
        await self.refresh()
        known = self._known
        return known[name] if known is not None and self._answered and name not in known.refused else None

    async def refresh(self) -> bool:
        """Read them now; True when they differ from what was known."""
        before = self._known
        try:
            async with autocommit(self._pool) as t:
                self._known = await read(t)
            self._answered = True
        except TobanError:
            # The last known ones count; the next turn asks again.
            self._answered = False
        self._read_at = self._clock.monotonic()
        if self._known is None or self._known == before:
            return False
        _version.set(self._known.version)
        self._changed.set()
        self._changed = asyncio.Event()
        return True

    async def wait_other_than(self, seen: Settings | None) -> Settings:
        """The settings as soon as they are not `seen` any more; None: as soon as they have been read."""
        while True:
            changed = self._changed
            if self._known is not None and self._known != seen:
                return self._known
            await changed.wait()
