"""Settings that a test gives, and changes."""

import asyncio

from toban_domain.settings import Settings


class FixedSettings:
    """What a coordinator's parts read; `set` is a change that everybody hears of. Those in `unsure` have a value that nobody knows."""

    def __init__(self, **values: float) -> None:
        self.unsure: set[str] = set()
        self._known = Settings(values, version=len(values))
        self._changed = asyncio.Event()

    @property
    def known(self) -> Settings:
        """As last set."""
        return self._known

    def set(self, **values: float) -> None:
        """Change these."""
        self._known = Settings({**self._known.values, **values}, version=self._known.version + len(values))
        self._changed.set()
        self._changed = asyncio.Event()

    async def get(self) -> Settings:
        """As last set."""
        return self._known

    async def sure(self, name: str) -> float | None:
        """As last set."""
        return None if name in self.unsure else self._known[name]

    async def wait_other_than(self, seen: Settings | None) -> Settings:
        """As soon as they are not `seen` any more."""
        while self._known == seen:
            await self._changed.wait()
        return self._known
