"""Named signals: the code under test emits events, and the test waits for them instead of for time."""

import asyncio
from collections import defaultdict
from typing import Any

DEFAULT_TIMEOUT_SECONDS = 5.0


class SignalTimeout(AssertionError):
    """A signal was not emitted within the timeout."""


class Signals:
    """Collects signals by name and lets tests wait for the n-th of a name, with a timeout.

    Pass `emit` to the code under test as its callback. Signals are kept, so an early signal is not missed.
    """

    def __init__(self) -> None:
        self._values: dict[str, list[Any]] = defaultdict(list)
        self._changed = asyncio.Event()

    def emit(self, name: str, value: Any = None) -> None:
        """Records the signal `name` with its value."""
        self._values[name].append(value)
        self._changed.set()

    def values(self, name: str) -> list[Any]:
        """Every value of `name`, oldest first."""
        return list(self._values[name])

    async def wait(self, name: str, *, count: int = 1, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> list[Any]:
        """Waits until `name` was emitted `count` times in total; returns its values."""
        try:
            async with asyncio.timeout(timeout):
                while len(self._values[name]) < count:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            seen = {key: len(values) for key, values in self._values.items() if values}
            raise SignalTimeout(
                f"{name!r} was emitted less than {count} times in {timeout:g} s; seen: {seen}"
            ) from None
        return self.values(name)
