"""The end of an incarnation: drain, end the remaining jobs, flush outcomes and output."""

import asyncio
import contextlib
import math
from collections.abc import Callable

from toban_domain.errors import TobanError
from toban_executor.app.attempt_manager import AttemptManager
from toban_executor.app.log_collector import LogCollector
from toban_executor.ports.journal import Journal
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

FLUSH_SECONDS = 5.0
"""How long to wait for coordinators and archivers at the end; the journal keeps what they do not accept."""
KILL_SECONDS = 5.0
"""How long a process tree may take to end after SIGKILL."""
DRAIN_NOTICE_SECONDS = 2.0
"""How long to wait for a coordinator to acknowledge that this executor drains."""
LINGER_SECONDS = 0.3
"""Orders sent before that acknowledgement are still answered for this long, so that their runs go elsewhere at once."""
_POLL_SECONDS = 0.02

_log = get_logger(__name__)


class Shutdown:
    """Ends the attempts of this incarnation in order. `longest_grace` limits the grace of each job, in seconds."""

    def __init__(
        self,
        *,
        attempts: AttemptManager,
        collector: LogCollector,
        journal: Journal,
        clock: Clock,
        longest_grace: float = math.inf,
    ) -> None:
        self._attempts = attempts
        self._collector = collector
        self._journal = journal
        self._clock = clock
        self._longest_grace = longest_grace

    async def drain(self, timeout: float, acknowledged: Callable[[], bool]) -> None:
        """Accept no new work and let the running jobs continue for `timeout` seconds, then end them as forced_shutdown.

        Each then has its own grace, at most `longest_grace` seconds. Waits until a coordinator has `acknowledged` the drain:
        the server must not stop while runs are still sent to it.
        """
        attempts = self._attempts
        attempts.book.stopping = True
        attempts.waiting.return_all("closed")
        _log.info("draining", live=len(attempts.book.live), timeout_seconds=timeout)
        began = self._clock.boottime()
        await self._until(lambda: acknowledged() or bool(attempts.lease.over), min(DRAIN_NOTICE_SECONDS, timeout))
        if acknowledged() and not attempts.lease.over:
            await self._clock.sleep(LINGER_SECONDS)
        spent = self._clock.boottime() - began
        await self._until(lambda: attempts.idle.is_set() or bool(attempts.lease.over), timeout - spent)
        if not attempts.idle.is_set():
            reason = f"the executor was stopped and the job had not ended after {timeout:g} s"
            grace = attempts.end_all(cause="shutdown", reason=reason, grace=None, at_most=self._longest_grace)
            await self._until(attempts.idle.is_set, grace + KILL_SECONDS)

    async def abandon(self) -> None:
        """The incarnation is over: end every attempt at once, if the guards have not done so."""
        attempts = self._attempts
        attempts.book.stopping = True
        attempts.end_all(cause="lease", reason=attempts.lease.over, grace=0.0)
        await self._until(lambda: attempts.idle.is_set() or attempts.broken.is_set(), 1.0)

    async def flush(self, *, deliver: bool) -> None:
        """Write everything to the journal; with `deliver` also wait until coordinators and archivers have it, within limits."""
        await self._until(lambda: not self._collector.pending, FLUSH_SECONDS)
        self._collector.release_outcomes()
        if deliver:
            await self._until(lambda: not self._attempts.reports_pending, FLUSH_SECONDS)
            # A disk that refuses or hangs gives no answer; the rest of the shutdown continues.
            with contextlib.suppress(TobanError, TimeoutError):
                left = FLUSH_SECONDS
                while await asyncio.wait_for(self._journal.log_bytes(), FLUSH_SECONDS) and left > 0:
                    await self._clock.sleep(_POLL_SECONDS)
                    left -= _POLL_SECONDS

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        until = self._clock.boottime() + seconds
        while not done() and self._clock.boottime() < until:
            await self._clock.sleep(_POLL_SECONDS)
