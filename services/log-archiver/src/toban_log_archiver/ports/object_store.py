"""The archive's bucket: objects are written once and never changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Digest:
    """What an object holds: its length and the SHA-256 of its bytes."""

    length: int
    sha256: bytes


class ObjectStore(Protocol):
    """Every method but `problem` raises TobanError UNAVAILABLE while the store does not answer, or gives broken answers."""

    async def problem(self) -> str:
        """Why the bucket cannot be used, as one line for people; empty when it can. Never raises for an outage."""
        ...

    def uri(self, key: str) -> str:
        """`s3://bucket/key`."""
        ...

    async def put_new(self, key: str, body: bytes) -> bool:
        """Writes an object unless there is one of that name; False when there is. Raises CONFLICT when another write is under way."""
        ...

    async def digest(self, key: str) -> Digest | None:
        """Reads an object from end to end; None when there is none."""
        ...

    async def read(self, key: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on. Raises NOT_FOUND when there is no such object; fewer bytes are UNAVAILABLE."""
        ...

    async def delete(self, key: str) -> None:
        """Removes an object; nothing happens when there is none. Raises CONFLICT when the store answers that it may not go."""
        ...
