"""One question for all loops of a term: an idle leader asks PostgreSQL once a tick, and its loops rest.

The loops tick at common instants (`Loop`); the first that asks sends the statement, the others wait for the same answer. A loop that was
woken does not ask: it turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.store import pending_work
from toban_coordinator.store.pending_work import Agenda
from toban_store.tx import autocommit


class PendingWorkPoller:
    """What is to do, as PostgreSQL says it; callers that come while the statement is under way share its answer."""

    def __init__(self, *, deps: LoopDeps) -> None:
        self._deps = deps
        self._asking: asyncio.Task[Agenda] | None = None
        self._waiting = 0

    def idle_turn(self, judge: Callable[[Agenda], TurnOutcome | None]) -> Callable[[], Awaitable[TurnOutcome | None]]:
        """The `idle_turn` of a TermLoop: its loop's own judgement of the agenda."""

        async def ask() -> TurnOutcome | None:
            return judge(await self.ask())

        return ask

    async def ask(self) -> Agenda:
        """The agenda. Raises StoreError."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(), name="agenda")
        asking = self._asking
        self._waiting += 1
        try:
            # A loop that ends does not take the answer from the others.
            return await asyncio.shield(asking)
        finally:
            self._waiting -= 1
            if not self._waiting:
                # All have ended, as their term has: no loop waits for the statement any more.
                asking.cancel()
                self._asking = None

    async def _ask(self) -> Agenda:
        now = self._deps.server_time.now()
        # Not read for this: a change wakes every loop.
        settings = self._deps.settings.known
        async with autocommit(self._deps.pool) as t:
            return await pending_work.read(t, now, now + timedelta(seconds=settings["assign_ahead_seconds"]))
