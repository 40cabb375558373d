"""The short way of runs on demand, as the calls see it: there while this process leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from toban_coordinator.store.runs import NewRun
from toban_domain.job import JobSpec

# More than this go the long way, where they are placed in batches.
MOST = 32
Specs = Mapping[tuple[int, int], JobSpec]


class ShortWay(Protocol):
    """Makes and places runs in one write."""

    async def place(self, new: Sequence[NewRun], specs: Specs, *, actor: str) -> list[int] | None:
        """The ids of `new`, made and on their way; None when they have to go the long way, and nothing was made."""
        ...


class ExpressDesk:
    """Where calls find the short way of the present term."""

    def __init__(self) -> None:
        self._way: ShortWay | None = None

    def lend(self, way: ShortWay) -> None:
        """A term begins to place."""
        self._way = way

    def withdraw(self, way: ShortWay) -> None:
        """That term is over."""
        if self._way is way:
            self._way = None

    def takes(self, count: int) -> bool:
        """Whether it is worth asking for so many runs."""
        return self._way is not None and count <= MOST

    async def place(self, new: Sequence[NewRun], specs: Specs, *, actor: str) -> list[int] | None:
        """As ShortWay.place; None while this process does not lead, or when a run is for later."""
        if self._way is None or any(run.scheduled_for is not None for run in new):
            return None
        return await self._way.place(new, specs, actor=actor)
