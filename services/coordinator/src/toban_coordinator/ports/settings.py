"""The settings as every part of a coordinator sees them."""

from __future__ import annotations

from typing import Protocol

from toban_domain.settings import Settings


class SettingsSource(Protocol):
    """Gives the settings as they are now; none of this fails."""

    @property
    def known(self) -> Settings:
        """As last read, without waiting: at most two seconds old while PostgreSQL answers."""
        ...

    async def get(self) -> Settings:
        """At most a second old while PostgreSQL answers."""
        ...

    async def get_verified(self, name: str) -> float | None:
        """The value for what cannot be undone, as it is now; None when it is unknown: no answer, or a stored value that is not allowed."""
        ...

    async def wait_other_than(self, seen: Settings | None) -> Settings:
        """As soon as they are not `seen` any more; None: as soon as they have been read."""
        ...
