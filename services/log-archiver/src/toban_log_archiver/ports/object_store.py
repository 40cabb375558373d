"""The object store as far as it is used now: whether the archive's bucket can be reached."""

from __future__ import annotations

from typing import Protocol


class ObjectStore(Protocol):
    """The archive's bucket."""

    async def problem(self) -> str:
        """Why the bucket cannot be used, as one line for people; empty when it can. Never raises for an outage."""
        ...
