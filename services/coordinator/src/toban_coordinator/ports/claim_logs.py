"""The output of external workers, on its way to the log-archivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey


@dataclass(frozen=True, slots=True)
class LogPlace:
    """An attempt whose output is stored, and the day of its dispatch by PostgreSQL."""

    key: AttemptKey
    log_day: date


class ClaimLogs(Protocol):
    """Calls to one of the log-archivers, which stores each chunk once."""

    async def append(self, place: LogPlace, blocks: Sequence[LogBlock]) -> None:
        """Stores lines. Raises CONFLICT when other lines are stored there, any other TobanError when that is unknown."""
        ...

    def seal(self, place: LogPlace, last_seq: int) -> None:
        """In the background: no line comes after this one. When no log-archiver answers, their next pass seals the attempt."""
        ...
