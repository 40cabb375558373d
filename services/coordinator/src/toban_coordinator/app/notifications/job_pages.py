"""Work over many jobs in pages: each page fits the time limits of PostgreSQL, and the next turn goes on behind the last page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from toban_coordinator.app.adaptive_batch import AdaptiveBatch
from toban_domain.errors import FencedOut
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_store.errors import Refused, StoreError, TooLong
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit

# Definitions of one page at most.
PAGE_ROWS = 200
# After so many seconds a turn begins no further page.
TURN_SECONDS = 2.0
# Work that is unfinished for longer than this is in the log.
BEHIND_SECONDS = 60.0
_log = get_logger(__name__)

behind_seconds = metrics.leader_gauge(
    "toban_part_behind_seconds",
    "Time since a part of the work of loops prune and notices was last finished, while a turn leaves some of it; else 0.",
    ("part",),
)
left_out = metrics.counter(
    "toban_part_jobs_left_out_total",
    "Jobs that a part of the work of loops prune and notices left out until its next round, by kind: slow (one job alone takes too long) or "
    "refused (by PostgreSQL).",
    ("part", "kind"),
)

# Reads the next definitions behind a number, at most so many, in their order.
ReadPage = Callable[[Tx, int, int], Awaitable[Sequence[int]]]
# Does the work for some definitions, with at most so many rows.
DoPage = Callable[[Sequence[int], int], Awaitable[None]]


class PartProgress:
    """Whether a part of a loop's work keeps up, as the metric and the log show it."""

    def __init__(self, part: str, clock: Clock) -> None:
        self.part = part
        self._clock = clock
        self._since: float | None = None
        self._logged = 0.0

    def note(self, *, finished: bool) -> None:
        """Called after each turn. `finished`: the turn left nothing of it."""
        now = self._clock.monotonic()
        if finished:
            if self._logged:
                _log.info("a part of the leader's periodic work has caught up", part=self.part)
            self._since, self._logged = None, 0.0
            behind_seconds.set(0.0, self.part)
            return
        self._since = now if self._since is None else self._since
        seconds = now - self._since
        behind_seconds.set(seconds, self.part)
        if now - max(self._since, self._logged) >= BEHIND_SECONDS:
            self._logged = now
            message = "a part of the leader's periodic work is behind: PostgreSQL is slow, or there is more to do than a turn can"
            _log.warning(message, part=self.part, seconds=round(seconds))


class JobPages:
    """Rounds over all jobs that `read` finds. A page that takes too long is halved; a job that alone takes too long, or that PostgreSQL refuses, is
    left out until the next round, so that it keeps no other job from its turn."""

    def __init__(self, part: str, *, pool: Pool, clock: Clock, read: ReadPage, work: DoPage) -> None:
        self._pool = pool
        self._clock = clock
        self._read = read
        self._work = work
        self._batch = AdaptiveBatch(PAGE_ROWS)
        self._progress = PartProgress(part, clock)
        self._after = 0
        self.failed: StoreError | None = None

    async def turn(self) -> bool:
        """Some pages; whether a round has been finished. An error that is not about single jobs ends the turn and is in `failed`; raises only
        FencedOut."""
        self.failed, finished = None, False
        until = self._clock.monotonic() + TURN_SECONDS
        try:
            finished = await self._page()
            while not finished and self._clock.monotonic() < until:
                finished = await self._page()
        except FencedOut:
            raise
        except StoreError as error:
            self.failed = error
            _log.error("a part of the leader's periodic work failed", part=self._progress.part, error=error.message)
        self._progress.note(finished=finished)
        return finished

    async def _page(self) -> bool:
        """One page; whether it was the last one of its round."""
        most = self._batch.size
        async with autocommit(self._pool) as t:
            page = await self._read(t, self._after, most)
        try:
            if page:
                await self._work(page, most)
        except (TooLong, Refused) as error:
            if most > 1:
                self._batch.too_long(most)
                return False
            if isinstance(error, TooLong) and not error.by_server:
                # It is this process that is slow, which is no fault of the job.
                raise
            self._leave_out(page[0], error)
        else:
            self._batch.fitted(most)
        self._after = page[-1] if len(page) == most else 0
        return self._after == 0

    def _leave_out(self, job: int, error: StoreError) -> None:
        kind = "slow" if isinstance(error, TooLong) else "refused"
        left_out.labels(self._progress.part, kind).inc()
        message = "a job is left out of a part of the leader's periodic work until its next round"
        _log.error(message, part=self._progress.part, definition_id=job, kind=kind, error=error.message)
