"""What people ask of the archive of logs, at a log-archiver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedObject:
    """An archived object that was read again; `problem` is empty when it is what was written."""

    number: int
    key: str
    chunks: int
    bytes: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveCheck:
    """Objects in the order of their numbers; `more`: the part has ended before the others."""

    objects: Sequence[CheckedObject]
    more: bool


class ArchiveCalls(Protocol):
    """Calls to one of the log-archivers."""

    async def begin_pass(self) -> None:
        """A pass begins; it is not waited for. Raises TobanError."""
        ...

    async def verify(self, log_day: str, *, after: int) -> ArchiveCheck:
        """The objects of a day with a number above `after`. Raises TobanError."""
        ...
