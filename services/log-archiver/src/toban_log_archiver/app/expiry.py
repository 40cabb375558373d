"""The last part of a pass: objects older than their retention are marked, expire a day later and leave the bucket; then their rows go.

Each step may be the last one before a crash, and is done again by the next pass: what has expired stays so, to delete an object twice
is to delete it once, and its row goes last.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date, timedelta

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.settings import Settings
from toban_log_archiver.app.archive_steps import StepDeps
from toban_log_archiver.decide.partition_window import DAYS_BACK
from toban_log_archiver.store import archive_expiry, archive_lease, partitions
from toban_log_archiver.store.archive_expiry import ExpiredObject, ExpiringDay
from toban_log_archiver.store.archive_lease import archive_tx
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_store.errors import TooLong
from toban_store.tx import autocommit

PAGE = 100
# Marks younger than this can be removed: time to notice that a retention was mistyped, seconds.
GRACE_SECONDS = 24 * 3600.0
# A pass asks for so many deletes that are refused, and the next one goes on behind them.
MAX_REFUSED = 50

_log = get_logger(__name__)
_objects = metrics.counter(
    "toban_archive_expired_objects_total", "Archived objects deleted after their retention had expired."
)
_bytes = metrics.counter(
    "toban_archive_expired_bytes_total", "Bytes of archived objects deleted after their retention had expired."
)
_waiting = metrics.gauge(
    "toban_archive_expired_waiting_objects",
    "Archived objects whose retention has expired and that are not deleted yet.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dates:
    """What is older than these; None: nothing."""

    expire: date | None
    forget: date | None


def expires_before(today: date, *, archive_days: int, db_days: int) -> date | None:
    """Objects of days before this one expire; None: never. What the database still keeps is kept by the archive too."""
    return today - timedelta(days=max(archive_days, db_days)) if archive_days else None


def forgotten_before(today: date, *, archive_days: int, db_days: int, history_days: int) -> date | None:
    """Rows of attempts of days before this one are deleted: their runs are deleted too, and no line of them may come any more."""
    expires = expires_before(today, archive_days=archive_days, db_days=db_days)
    return None if expires is None else min(expires, today - timedelta(days=max(history_days, DAYS_BACK + 1)))


async def dates(deps: StepDeps, settings: Settings) -> Dates:
    """By PostgreSQL's day and the settings."""
    async with autocommit(deps.pool) as t:
        today, _ = await partitions.present(t, [])
    archive_days, db_days = settings.whole("log_retention_days_archive"), settings.whole("log_retention_days_db")
    history_days = settings.whole("history_retention_days")
    return Dates(
        expire=expires_before(today, archive_days=archive_days, db_days=db_days),
        forget=forgotten_before(today, archive_days=archive_days, db_days=db_days, history_days=history_days),
    )


async def plan(deps: StepDeps, settings: Settings, *, grace_seconds: float) -> list[ExpiringDay]:
    """The days that a pass would mark or let expire."""
    before = (await dates(deps, settings)).expire
    if before is None:
        return []
    async with autocommit(deps.pool) as t:
        return await archive_expiry.days(t, before=before, grace_seconds=grace_seconds)


class Expiry:
    """As the archiver of `epoch`. Every write raises FencedOut once another one has the lease.

    Deletes begin behind the object `after`. At the end `failures` are what the object store refused, or that it did not answer, and
    `refused_to` is where the next pass begins (0 = with the oldest).
    """

    def __init__(self, deps: StepDeps, epoch: int, *, grace_seconds: float = GRACE_SECONDS, after: int = 0) -> None:
        self._deps = deps
        self._epoch = epoch
        self._grace_seconds = grace_seconds
        self._after = after
        self.failures: list[TobanError] = []
        self.refused_to = 0

    async def run(self, settings: Settings) -> AsyncIterator[ExpiredObject | date]:
        """Objects that left the bucket, and days that are forgotten. `settings` are those that hold now: what they do stays done."""
        found = await dates(self._deps, settings)
        await self._unmark(found.expire)
        if found.expire is not None:
            await self._mark(found.expire)
        async for deleted in self._delete():
            yield deleted
        if found.forget is not None:
            async for day in self._forget(found.forget):
                yield day

    async def _unmark(self, before: date | None) -> None:
        async with archive_tx(self._deps.pool, self._epoch) as a:
            kept = await archive_expiry.unmark(a, before=before)
        if kept:
            _log.info("marked objects are kept after all: the retention is longer now", objects=kept)

    async def _mark(self, before: date) -> None:
        async with autocommit(self._deps.pool) as t:
            days = await archive_expiry.days(t, before=before, grace_seconds=self._grace_seconds)
        for day in days:
            self._deps.before_step("mark")
            async with archive_tx(self._deps.pool, self._epoch) as a:
                marked = await archive_expiry.mark(a, day.log_day)
            self._deps.before_step("expire")
            async with archive_tx(self._deps.pool, self._epoch) as a:
                expired = await archive_expiry.expire(a, day.log_day, grace_seconds=self._grace_seconds)
                self._deps.before_step("expire_commit")
            if marked:
                _log.info("a day of the archive will expire", log_day=str(day.log_day), objects=marked)
            if expired:
                _log.info("a day of the archive has expired", log_day=str(day.log_day), objects=expired)

    async def _delete(self) -> AsyncIterator[ExpiredObject]:
        after = self._after
        while True:
            async with autocommit(self._deps.pool) as t:
                page = await archive_expiry.waiting(t, after=after, size=PAGE)
                _waiting.set(await archive_expiry.waiting_count(t))
            for row in page:
                after = row.id
                # An archiver that was taken over deletes nothing more.
                await archive_lease.renew(self._deps.pool, self._epoch)
                self._deps.before_step("delete")
                try:
                    await self._deps.store.delete(row.key)
                except TobanError as error:
                    self.failures.append(error)
                    if error.code is not ErrorCode.CONFLICT:
                        return
                    if len(self.failures) == MAX_REFUSED:
                        self.refused_to = after
                        return
                    continue
                self._deps.before_step("deleted")
                async with archive_tx(self._deps.pool, self._epoch) as a:
                    await archive_expiry.deleted(a, row.id)
                _objects.inc()
                _bytes.inc(row.bytes)
                _waiting.dec()
                yield row
            if len(page) < PAGE:
                return

    async def _forget(self, before: date) -> AsyncIterator[date]:
        while True:
            async with autocommit(self._deps.pool) as t:
                objects = await archive_expiry.forgettable(t, before=before, size=PAGE)
            for object_id in objects:
                await self._forget_object(object_id)
            if len(objects) < PAGE:
                break
        async with autocommit(self._deps.pool) as t:
            days = await archive_expiry.token_days(t, before=before)
        for day in days:
            self._deps.before_step("forget_day")
            try:
                async with archive_tx(self._deps.pool, self._epoch) as a:
                    forgotten = await archive_expiry.forget_day(a, day)
            except TooLong:
                # In use: the next pass finds it again.
                continue
            if forgotten:
                yield day

    async def _forget_object(self, object_id: int) -> None:
        """In pieces: each statement ends soon, and no other transaction waits long for a large object."""
        is_last = False
        while not is_last:
            self._deps.before_step("forget_object")
            async with archive_tx(self._deps.pool, self._epoch) as a:
                is_last = await archive_expiry.forget_object(a, object_id)
