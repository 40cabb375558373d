"""Readers that follow a run, and what wakes them: a notification of any archiver's commit, else a slow poll."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Collection, Iterator
from contextlib import contextmanager

from toban_observability import metrics

CHANNEL = "toban_logs"
# PostgreSQL takes payloads below 8,000 bytes: more runs than this are announced as "any run".
MAX_NAMED_RUNS = 300
ANY_RUN = "*"

_open = metrics.gauge("toban_log_followers", "Open follow streams of runs.")


def wake_payload(runs: Collection[int]) -> str:
    """The notification for a commit that touched these runs."""
    return ANY_RUN if len(runs) > MAX_NAMED_RUNS else ",".join(map(str, sorted(runs)))


class Followers:
    """One event a follower, set when its run may have something new, or when the service stops."""

    def __init__(self) -> None:
        self._events: dict[int, set[asyncio.Event]] = {}
        self.stopping = False

    @contextmanager
    def follow(self, run_id: int) -> Iterator[asyncio.Event]:
        """An event that is set when `run_id` may have new lines; clear it before reading."""
        event = asyncio.Event()
        self._events.setdefault(run_id, set()).add(event)
        _open.inc()
        try:
            yield event
        finally:
            _open.dec()
            self._events[run_id].discard(event)
            if not self._events[run_id]:
                del self._events[run_id]

    async def listen(self, payloads: AsyncIterable[str]) -> None:
        """Wakes followers for each payload until it is cancelled."""
        async for payload in payloads:
            self.wake(payload)

    def wake(self, payload: str) -> None:
        """Wakes the followers of the named runs; of all runs for any other payload (a reconnection, a newer sender)."""
        names = payload.split(",")
        runs = [int(name) for name in names] if all(map(str.isdecimal, names)) else list(self._events)
        for run_id in runs:
            for event in self._events.get(run_id, ()):
                event.set()

    def stop(self) -> None:
        """Lets every follower end."""
        self.stopping = True
        self.wake(ANY_RUN)
