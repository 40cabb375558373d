"""What the archiver reads from coordinators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from toban_domain.outcome import AttemptKey
from toban_domain.settings import Settings


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that writes no line any more; `last_seq` is None when its executor is off and never reported it."""

    key: AttemptKey
    last_seq: int | None


class ArchiveGateway(Protocol):
    """Any coordinator answers. Every method raises TobanError UNAVAILABLE when none does."""

    async def ended(self, log_day: date, keys: Sequence[AttemptKey], *, off_seconds: float) -> Sequence[Ended]:
        """Those of `keys` that have ended; an executor counts as lost when it has been off for `off_seconds`."""
        ...

    async def settings_now(self) -> Settings:
        """The settings as a coordinator has them at this moment."""
        ...

    def watch_settings(self, known_version: int) -> AsyncIterator[Settings]:
        """The settings now and on each change, from one coordinator; the next call asks the next one."""
        ...
