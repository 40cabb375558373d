"""Settings as stored, over the defaults of toban_domain.settings, read at most once a second."""

from __future__ import annotations

from toban_domain.errors import TobanError
from toban_domain.settings import SETTINGS, Settings
from toban_runtime.clock import Clock
from toban_store import queries
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit

_sql = queries.load(__name__)
CACHE_SECONDS = 1.0


async def read(t: Tx) -> Settings:
    """All settings now. A stored value that this release does not allow is left out in favour of the default."""
    rows = await t.fetch_all(_sql.stored)
    good = {row["name"]: row["value"] for row in rows if _allowed(row["name"], row["value"])}
    return Settings(good, version=sum(row["version"] for row in rows))


def _allowed(name: str, value: object) -> bool:
    try:
        return name in SETTINGS and SETTINGS[name].check(value) is not None
    except TobanError:
        return False


class SettingsCache:
    """The settings, at most CACHE_SECONDS old while PostgreSQL answers; the last known ones while it does not."""

    def __init__(self, *, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._known: Settings | None = None
        self._read_at = 0.0

    async def get(self) -> Settings:
        """The settings; defaults when PostgreSQL has never answered."""
        if self._known is not None and self._clock.monotonic() - self._read_at < CACHE_SECONDS:
            return self._known
        try:
            async with autocommit(self._pool) as t:
                self._known = await read(t)
        except TobanError:
            self._known = self._known or Settings()
        self._read_at = self._clock.monotonic()
        return self._known
