"""What coordinators ask executors besides orders."""

from __future__ import annotations

from typing import Protocol


class ExecutorProbe(Protocol):
    """A short call to an executor's WorkerService."""

    async def ping(self, address: str) -> str | None:
        """The incarnation that answers at `address` within 300 ms; None for no answer."""
        ...
