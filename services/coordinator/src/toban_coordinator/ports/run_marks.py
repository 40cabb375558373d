"""Marks on runs while a leader assigns them: a hint in Redis, never truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class RunMarks(Protocol):
    """Marks runs as being assigned by an epoch."""

    async def take(self, run_ids: Sequence[int], epoch: int) -> frozenset[int]:
        """The runs that no higher epoch has marked; all of them when nobody can tell."""
        ...
