"""The end of an incarnation: drain, end what still runs, hand in what is known."""

import asyncio
import contextlib
import math
from collections.abc import Callable

from toban_domain.errors import TobanError
from toban_executor.loops.attempt_manager import Attempts
from toban_executor.loops.log_collector import Collector
from toban_executor.loops.outcome_reporter import Reporter
from toban_executor.ports import Journal
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

HAND_IN_SECONDS = 5.0
"""How long to wait for coordinators and archivers at the end; the journal keeps what they do not take."""

KILL_SECONDS = 5.0
"""How long a tree may take to end after SIGKILL."""
TELL_SECONDS = 2.0
"""How long a coordinator may take to hear that no new work is wanted."""
LINGER_SECONDS = 0.3
"""Orders that were on their way when a coordinator heard it are still answered, so that their runs go elsewhere at once."""
_POLL_SECONDS = 0.02

_log = get_logger(__name__)


class Retirement:
    """Ends the attempts of this incarnation in order."""

    def __init__(
        self,
        *,
        attempts: Attempts,
        reporter: Reporter,
        collector: Collector,
        journal: Journal,
        clock: Clock,
        longest_grace: float = math.inf,
    ) -> None:
        self._attempts = attempts
        self._reporter = reporter
        self._collector = collector
        self._journal = journal
        self._clock = clock
        self._longest_grace = longest_grace

    async def drain(self, timeout: float, lost: Callable[[], str], told: Callable[[], bool]) -> None:
        """Take no new work and let the running jobs go on for `timeout` seconds, then end them as forced_shutdown.

        Each has its own grace then, of which `longest_grace` seconds at most: whoever kills this process at some moment names them.
        Not over before a coordinator has been `told`: the server must not go while runs are still sent to it.
        """
        self._attempts.book.stopping = True
        _log.info("draining", live=len(self._attempts.book.live), timeout_seconds=timeout)
        began = self._clock.boottime()
        await self._until(lambda: told() or bool(lost()), min(TELL_SECONDS, timeout))
        if told() and not lost():
            await self._clock.sleep(LINGER_SECONDS)
        spent = self._clock.boottime() - began
        await self._until(lambda: self._attempts.idle.is_set() or bool(lost()), timeout - spent)
        if not self._attempts.idle.is_set():
            reason = f"the executor was stopped and the job had not ended after {timeout:g} s"
            grace = self._attempts.end_all(cause="shutdown", reason=reason, grace=None, at_most=self._longest_grace)
            await self._until(self._attempts.idle.is_set, grace + KILL_SECONDS)

    async def abandon(self, why: str) -> None:
        """The incarnation is over: end every attempt at once, if the guards have not done it yet."""
        self._attempts.book.stopping = True
        self._attempts.end_all(cause="lease", reason=why, grace=0.0)
        await self._until(lambda: self._attempts.idle.is_set() or self._attempts.broken.is_set(), 1.0)

    async def hand_in(self, *, to_others: bool) -> None:
        """Everything into the journal; with `to_others` also to coordinators and archivers, as far as they take it soon."""
        await self._until(lambda: not self._collector.pending, HAND_IN_SECONDS)
        self._collector.release()
        if to_others:
            await self._until(lambda: not self._reporter.pending, HAND_IN_SECONDS)
            # A disk that refuses or hangs does not say; the rest of the end goes on.
            with contextlib.suppress(TobanError, TimeoutError):
                left = HAND_IN_SECONDS
                while await asyncio.wait_for(self._journal.log_bytes(), HAND_IN_SECONDS) and left > 0:
                    await self._clock.sleep(_POLL_SECONDS)
                    left -= _POLL_SECONDS

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        until = self._clock.boottime() + seconds
        while not done() and self._clock.boottime() < until:
            await self._clock.sleep(_POLL_SECONDS)


async def stop_all(tasks: list["asyncio.Task[None]"], seconds: float) -> None:
    """Let loops finish their turn, then cancel them."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
