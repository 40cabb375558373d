"""What is written to Redis for others to read: the hashes of workers, and marks on runs. Hints, never truth, and never waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class MemberMirror(Protocol):
    """Takes worker hashes and writes them to Redis some time later, or never."""

    def put(self, worker_id: int, fields: Mapping[str, str]) -> None:
        """The newest fields of a worker; earlier ones that were not written yet are forgotten."""
        ...


class RunMarks(Protocol):
    """Marks runs as being assigned by an epoch."""

    async def take(self, run_ids: Sequence[int], epoch: int) -> frozenset[int]:
        """The runs that no higher epoch has marked; all of them while Redis does not answer."""
        ...
