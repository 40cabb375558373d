"""Settings that a test sets and changes."""

import asyncio

from toban_domain.settings import Settings


class FixedSettings:
    """The settings reader of a coordinator; `set` notifies all waiters. Settings in `unsure` cannot be read reliably."""

    def __init__(self, **values: float) -> None:
        self.unsure: set[str] = set()
        self._known = Settings(values, version=len(values))
        self._changed = asyncio.Event()

    @property
    def known(self) -> Settings:
        """The current settings."""
        return self._known

    def set(self, **values: float) -> None:
        """Changes settings and notifies waiters."""
        self._known = Settings({**self._known.values, **values}, version=self._known.version + len(values))
        self._changed.set()
        self._changed = asyncio.Event()

    async def get(self) -> Settings:
        """The current settings."""
        return self._known

    async def get_verified(self, name: str) -> float | None:
        """The current value; None while it is unverified."""
        return None if name in self.unsure else self._known[name]

    async def wait_other_than(self, seen: Settings | None) -> Settings:
        """Waits until the settings differ from `seen`."""
        while self._known == seen:
            await self._changed.wait()
        return self._known
