"""Loop `archive`: one pass moves what is older than its retention into the object store, as the one archiver that holds the lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import date

from toban_domain.errors import ErrorCode, FencedOut, TobanError
from toban_domain.outcome import AttemptKey
from toban_fencing.archive_lease import ArchiveLease
from toban_log_archiver.decide import database_budget
from toban_log_archiver.decide.object_packing import TARGET_BYTES, Packer
from toban_log_archiver.loops import expire
from toban_log_archiver.loops.archive_steps import ManifestDiffers, ObjectDiffers, StepDeps, Steps
from toban_log_archiver.loops.dropped_lines import CountMarks, LeftOutLines
from toban_log_archiver.loops.pass_report import TICK_SECONDS, Did, Report, Tally
from toban_log_archiver.ports.archive_gateway import ArchiveGateway
from toban_log_archiver.store import archive, archive_lease, archive_reads, partitions
from toban_log_archiver.store.archive import EndedToken
from toban_log_archiver.store.archive_lease import LeaseTable, archive_tx
from toban_log_archiver.store.archive_reads import ChunkFacts, TokenFacts
from toban_observability import metrics, tracing
from toban_observability.logs import get_logger
from toban_runtime.settings_watch import SettingsWatch
from toban_store.errors import StoreError, TooLong
from toban_store.tx import autocommit

# A holder that has not renewed for this long is taken over, seconds.
LEASE_SECONDS = 30.0
TOKENS_PAGE = 500
# Chunks of several attempts that are looked up together.
CHUNKS_PAGE = 2000
UNFINISHED_PAGE = 100
FAILURES_TOLD = 3

_log = get_logger(__name__)
_dropped = metrics.counter(
    "toban_archive_partitions_dropped_total",
    "Day partitions dropped from PostgreSQL after all their chunks were archived.",
)
_working = metrics.gauge("toban_archive_working", "1 while this process holds the archive lease and archives.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiverDeps:
    """What the archiver works with; `holder` is its name in the lease."""

    steps: StepDeps
    gateway: ArchiveGateway
    settings: SettingsWatch
    holder: str
    count_marks: CountMarks
    lease_seconds: float = LEASE_SECONDS
    target_bytes: int = TARGET_BYTES
    grace_seconds: float = expire.GRACE_SECONDS


class Archiver:
    """`run_once` for a Loop. `problem` says how the last pass of this process failed; empty when it went well, or there was none."""

    def __init__(self, *, deps: ArchiverDeps) -> None:
        self._deps = deps
        self._pool = deps.steps.pool
        self.problem = ""
        self._unheard = 0
        # The object behind which the next pass begins to delete.
        self._delete_after = 0
        self._counted = LeftOutLines(pool=self._pool, count_marks=deps.count_marks)
        self._lease = ArchiveLease(
            row=LeaseTable(pool=self._pool, holder=deps.holder, lease_seconds=deps.lease_seconds),
            lease_seconds=deps.lease_seconds,
            sleep=deps.steps.clock.sleep,
            on_renew_error=_log_renew_error,
        )

    async def run_once(self) -> None:
        """One pass, unless another archiver works. An outage ends the pass and is raised: the loop's backoff says when the next one comes."""
        if not self._deps.settings.received:
            self._unheard += 1
            if self._unheard > 1:
                self.problem = (
                    "the settings are not known yet, so nothing is archived: see that SCHEDULER_COORDINATORS is right"
                )
            return
        with suppress(Busy), tracing.span("archive"):
            await self.work(lambda _: None)

    async def work(self, report: Report) -> None:
        """One pass; `report` hears what it does. Raises Busy while another archiver works, TobanError when it had to be broken off."""
        epoch = await self._lease.take()
        if epoch is None:
            async with autocommit(self._pool) as t:
                raise Busy((await archive_lease.look(t)).holder)
        tally = Tally(report)
        self._deps.steps.passing("taken")
        try:
            async with self._working(epoch):
                await self._pass(Steps(self._deps.steps, epoch), epoch, tally)
        except FencedOut as error:
            tally.failed("database", error)
            raise
        except TobanError as error:
            tally.failed("database" if isinstance(error, StoreError) else "unavailable", error)
            with suppress(TobanError):
                await self._lease.release(epoch, summary=tally.summary, error=tally.problem)
            raise
        except asyncio.CancelledError:
            # Who asked for the pass has left, or the process ends: others need not wait for the lease to run out.
            with suppress(TobanError):
                await self._lease.release(epoch, summary=tally.summary, error=tally.problem)
            raise
        else:
            await self._lease.release(epoch, summary=tally.summary, error=tally.problem)
        finally:
            self.problem = tally.problem

    async def plan(self) -> AsyncIterator[Did]:
        """What a pass would archive, day by day, without doing it."""
        due, early = await self._days()
        for day in due + early[:1]:
            found = [token async for token in self._tokens(day)]
            ready = [token for token in found if token.ready and token.chunks]
            waiting = [token for token in found if not token.ready]
            yield Did(
                action="would_archive",
                log_day=day,
                tokens=len(ready),
                chunks=sum(token.chunks for token in ready),
                bytes=sum(token.bytes for token in ready),
                message=f"{len(waiting)} attempts have not ended" if waiting else "",
            )
        grace = self._deps.grace_seconds
        for old in await expire.plan(self._deps.steps, self._deps.settings.known, grace_seconds=grace):
            yield Did(
                action="would_expire",
                log_day=old.log_day,
                tokens=old.tokens,
                chunks=old.chunks,
                lines=old.lines,
                bytes=old.bytes,
                message="" if old.ready == old.objects else f"{grace / 3600:g} hours after a pass has marked it",
            )

    async def _pass(self, steps: Steps, epoch: int, tally: Tally) -> None:
        await self._resume(steps, tally)
        due, _ = await self._days()
        for day in due:
            await self._move(day, steps, epoch, tally)
        _, early = await self._days()
        for day in early:
            if await self._move(day, steps, epoch, tally):
                break
        await self._expire(epoch, tally)

    async def _move(self, day: date, steps: Steps, epoch: int, tally: Tally) -> bool:
        """What of a day may be archived is; whether the day left the database."""
        await self._seal(day, epoch, tally)
        async for pack in self._packs(day):
            try:
                done = await steps.archive(day, pack)
            except (ObjectDiffers, ManifestDiffers) as error:
                # This pack alone is in trouble: the others go on.
                tally.failed("differs", error, day)
                continue
            if done:
                tally.archived(done)
        return await self._drop(day, epoch, tally)

    async def _expire(self, epoch: int, tally: Tally) -> None:
        """By the settings as a coordinator has them now: old ones may have been mistyped, and mended since."""
        try:
            settings = await self._deps.gateway.settings_now()
        except TobanError as error:
            if self._deps.settings.known["log_retention_days_archive"]:
                tally.failed("coordinator", error)
            return
        expiry = expire.Expiry(
            self._deps.steps, epoch, grace_seconds=self._deps.grace_seconds, after=self._delete_after
        )
        async for gone in expiry.run(settings):
            tally.gone(gone)
        self._delete_after = expiry.refused_to
        # What has expired waits in the bucket. The last ones say enough: a store that refuses one often refuses many.
        for failure in expiry.failures[-FAILURES_TOLD:]:
            tally.failed("unavailable", failure)

    async def _resume(self, steps: Steps, tally: Tally) -> None:
        """What an archiver that died, or was fenced, had begun."""
        async with autocommit(self._pool) as t:
            rows = await archive_reads.unfinished(t, size=UNFINISHED_PAGE)
        for row in rows:
            try:
                done = await steps.resume(row)
            except ObjectDiffers as error:
                tally.failed("differs", error, row.log_day)
                continue
            if done:
                tally.archived(done)

    async def _days(self) -> tuple[list[date], list[date]]:
        """Days whose time has come, and those that the budget sends before their time."""
        settings = self._deps.settings.known
        async with archive_reads.patient(self._pool) as t:
            days = await archive_reads.days(t, retention_days=settings.whole("log_retention_days_db"))
            used = (await archive_reads.volume(t)).chunks / (settings["log_budget_db_gb"] * database_budget.GB)
            today, _ = await partitions.present(t, [])
        return database_budget.due_days(days), database_budget.early_days(days, used=used, today=today)

    async def _seal(self, day: date, epoch: int, tally: Tally) -> None:
        """Attempts that will never seal themselves are sealed with what the coordinators know of them."""
        off_seconds = self._deps.settings.known["seal_after_seconds"]
        after = (0, 0)
        while True:
            async with autocommit(self._pool) as t:
                page = await archive_reads.open_tokens(t, day, after=after, size=TOKENS_PAGE)
            if not page:
                return
            after = page[-1]
            try:
                keys = [AttemptKey(run_id, token) for run_id, token in page]
                ended = await self._deps.gateway.ended(day, keys, off_seconds=off_seconds)
            except TobanError as error:
                tally.failed("coordinator", error, day)
                return
            self._deps.steps.passing("seal")
            async with archive_tx(self._pool, epoch) as a:
                sealed = await archive.seal(
                    a, day, [EndedToken(run_id=e.key.run_id, token=e.key.token, last_seq=e.last_seq) for e in ended]
                )
            if sealed:
                tally.report(Did(action="sealed", log_day=day, tokens=sealed))
                _log.info("attempts sealed for their executors", log_day=str(day), tokens=sealed)

    async def _packs(self, day: date) -> AsyncIterator[Sequence[ChunkFacts]]:
        packer: Packer[ChunkFacts] = Packer(self._deps.target_bytes)
        async for group in self._ready(day):
            async with archive_reads.patient(self._pool) as t:
                chunks = await archive_reads.chunks(t, day, group)
            for full in packer.add(chunks):
                yield full
        for rest in packer:
            yield rest

    async def _ready(self, day: date) -> AsyncIterator[list[TokenFacts]]:
        """Attempts that may be archived now, as many together as are looked up at once."""
        group: list[TokenFacts] = []
        chunks = 0
        async for token in self._tokens(day):
            if token.ready and token.chunks:
                group.append(token)
                chunks += token.chunks
            if chunks >= CHUNKS_PAGE:
                yield group
                group, chunks = [], 0
        if group:
            yield group

    async def _tokens(self, day: date) -> AsyncIterator[TokenFacts]:
        wait = self._deps.settings.known["seal_after_seconds"]
        after = (0, 0)
        while True:
            async with archive_reads.patient(self._pool) as t:
                page = await archive_reads.tokens(t, day, after=after, size=TOKENS_PAGE, wait_seconds=wait)
            for token in page:
                yield token if token.ready else await self._counted.ready(day, token)
            if len(page) < TOKENS_PAGE:
                return
            after = (page[-1].run_id, page[-1].token)

    async def _drop(self, day: date, epoch: int, tally: Tally) -> bool:
        async with archive_reads.patient(self._pool) as t:
            stored = await archive_reads.stored_day(t, day)
        if stored.open_chunks:
            return False
        self._deps.steps.passing("drop")
        try:
            async with archive_tx(self._pool, epoch) as a:
                gone = await archive.drop_day(a, day)
                self._deps.steps.passing("drop_commit")
        except TooLong as error:
            _log.info("a day's table is in use", log_day=str(day), error=error.message, next_try_seconds=TICK_SECONDS)
            return False
        self._deps.steps.passing("dropped")
        if gone:
            _dropped.inc()
            tally.days += 1
            tally.report(
                Did(action="dropped", log_day=day, tokens=stored.tokens, chunks=stored.chunks, bytes=stored.bytes)
            )
            _log.info("a day left the database", log_day=str(day), chunks=stored.chunks)
        return gone

    @asynccontextmanager
    async def _working(self, epoch: int) -> AsyncIterator[None]:
        _working.set(1)
        try:
            async with self._lease.renewed(epoch):
                yield
        finally:
            _working.set(0)


def _log_renew_error(error: TobanError, next_try_seconds: float) -> None:
    _log.warning("the archive lease was not renewed", error=error.message, next_try_seconds=next_try_seconds)


class Busy(TobanError):
    """Another archiver works."""

    def __init__(self, holder: str) -> None:
        super().__init__(
            ErrorCode.CONFLICT,
            f"log-archiver {holder} archives at this moment: look with `toban archive status`, then try again",
        )
