"""A pass of the archive: what is older than its retention moves into the object store. One log-archiver at a time holds the lease for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import date

from toban_domain.errors import ErrorCode, FencedOut, TobanError
from toban_domain.outcome import AttemptKey
from toban_fencing.archive_lease import ArchiveLease
from toban_log_archiver.app import expiry
from toban_log_archiver.app.archive_steps import ManifestDiffers, ObjectDiffers, StepDeps, Steps
from toban_log_archiver.app.dropped_lines import DroppedLines
from toban_log_archiver.app.pass_report import PASS_SECONDS, OnEvent, PassEvent, PassReport
from toban_log_archiver.decide import database_budget
from toban_log_archiver.decide.object_packing import TARGET_BYTES, Packer
from toban_log_archiver.ports.archive_gateway import ArchiveGateway
from toban_log_archiver.ports.chunk_codec import ChunkCodec
from toban_log_archiver.store import archive, archive_lease, archive_reads, partitions
from toban_log_archiver.store.archive import EndedToken
from toban_log_archiver.store.archive_lease import LeaseTable, archive_tx
from toban_log_archiver.store.archive_reads import ChunkFacts, TokenFacts
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.settings_watch import SettingsWatch
from toban_store.errors import StoreError, TooLong
from toban_store.tx import autocommit

# A holder that has not renewed for this long is taken over, seconds.
LEASE_SECONDS = 30.0
TOKENS_PAGE = 500
# Chunks of several attempts that are read together.
CHUNKS_PAGE = 2000
UNFINISHED_PAGE = 100
REPORTED_FAILURES = 3

_log = get_logger(__name__)
_dropped = metrics.counter(
    "toban_archive_partitions_dropped_total",
    "Day partitions dropped from PostgreSQL after all their chunks were archived.",
)
_working = metrics.gauge("toban_archive_working", "1 while this process holds the archive lease and archives.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """`lease_seconds`: a holder that has not renewed for this long is replaced. `grace_seconds` lie between an object's mark and its expiry."""

    lease_seconds: float = LEASE_SECONDS
    target_bytes: int = TARGET_BYTES
    grace_seconds: float = expiry.GRACE_SECONDS


class Archiver:
    """Passes of this process; `holder` is its name in the lease."""

    def __init__(
        self,
        *,
        steps: StepDeps,
        codec: ChunkCodec,
        gateway: ArchiveGateway,
        settings: SettingsWatch,
        holder: str,
        limits: ArchiveLimits = ArchiveLimits(),
    ) -> None:
        self._steps = steps
        self._pool = steps.pool
        self._gateway = gateway
        self._settings = settings
        self._limits = limits
        self._problem = ""
        # The object behind which the next pass begins to delete.
        self._delete_after = 0
        self._dropped_lines = DroppedLines(pool=self._pool, codec=codec)
        self._lease = ArchiveLease(
            row=LeaseTable(pool=self._pool, holder=holder, lease_seconds=limits.lease_seconds),
            lease_seconds=limits.lease_seconds,
            sleep=steps.clock.sleep,
            on_renew_error=_log_renew_error,
        )

    @property
    def problem(self) -> str:
        """How the last pass of this process failed, or why there was none; empty when all is well."""
        return self._problem

    def set_problem(self, problem: str) -> None:
        """Why there is no pass."""
        self._problem = problem

    async def run_pass(self, on_event: OnEvent = lambda _event: None) -> None:
        """One pass; `on_event` gets what it does. Raises Busy while another archiver works, TobanError when an outage ended it."""
        epoch = await self._lease.take()
        if epoch is None:
            async with autocommit(self._pool) as t:
                raise Busy((await archive_lease.read(t)).holder)
        report = PassReport(on_event)
        self._steps.before_step("taken")
        try:
            async with self._working(epoch):
                await self._pass(Steps(self._steps, epoch), epoch, report)
        except FencedOut as error:
            report.failed("database", error)
            raise
        except TobanError as error:
            report.failed("database" if isinstance(error, StoreError) else "unavailable", error)
            with suppress(TobanError):
                await self._lease.release(epoch, summary=report.summary, error=report.problem)
            raise
        except asyncio.CancelledError:
            # The caller has left, or the process ends: others need not wait for the lease to run out.
            with suppress(TobanError):
                await self._lease.release(epoch, summary=report.summary, error=report.problem)
            raise
        else:
            await self._lease.release(epoch, summary=report.summary, error=report.problem)
        finally:
            self._problem = report.problem

    async def events(self) -> AsyncGenerator[PassEvent, None]:
        """One pass, as what it does. Closing the generator ends the pass; the next one finishes what it had begun. Raises as `run_pass`."""
        queue: asyncio.Queue[PassEvent | None] = asyncio.Queue()
        working = asyncio.ensure_future(self.run_pass(queue.put_nowait))
        working.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            await working
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def plan(self) -> AsyncGenerator[PassEvent, None]:
        """What a pass would archive, day by day, without doing it."""
        due, early = await self._days()
        for day in due + early[:1]:
            found = [token async for token in self._tokens(day)]
            ready = [token for token in found if token.ready and token.chunks]
            waiting = [token for token in found if not token.ready]
            yield PassEvent(
                action="would_archive",
                log_day=day,
                tokens=len(ready),
                chunks=sum(token.chunks for token in ready),
                bytes=sum(token.bytes for token in ready),
                message=f"{len(waiting)} attempts have not ended" if waiting else "",
            )
        grace = self._limits.grace_seconds
        for old in await expiry.plan(self._steps, self._settings.known, grace_seconds=grace):
            yield PassEvent(
                action="would_expire",
                log_day=old.log_day,
                tokens=old.tokens,
                chunks=old.chunks,
                lines=old.lines,
                bytes=old.bytes,
                message="" if old.ready == old.objects else f"{grace / 3600:g} hours after a pass has marked it",
            )

    async def _pass(self, steps: Steps, epoch: int, report: PassReport) -> None:
        await self._resume(steps, report)
        due, _ = await self._days()
        for day in due:
            await self._move(day, steps, epoch, report)
        _, early = await self._days()
        for day in early:
            if await self._move(day, steps, epoch, report):
                break
        await self._expire(epoch, report)

    async def _move(self, day: date, steps: Steps, epoch: int, report: PassReport) -> bool:
        """Archives what of a day may be archived; True when the day left the database."""
        await self._seal(day, epoch, report)
        async for pack in self._packs(day):
            try:
                done = await steps.archive(day, pack)
            except (ObjectDiffers, ManifestDiffers) as error:
                # This pack alone fails: the others go on.
                report.failed("differs", error, day)
                continue
            if done:
                report.archived(done)
        return await self._drop(day, epoch, report)

    async def _expire(self, epoch: int, report: PassReport) -> None:
        """By the settings as a coordinator has them now: older ones may have been mistyped, and corrected since."""
        try:
            settings = await self._gateway.settings_now()
        except TobanError as error:
            if self._settings.known["log_retention_days_archive"]:
                report.failed("coordinator", error)
            return
        deletion = expiry.Expiry(self._steps, epoch, grace_seconds=self._limits.grace_seconds, after=self._delete_after)
        async for one in deletion.run(settings):
            report.expired_one(one)
        self._delete_after = deletion.refused_to
        # What has expired waits in the bucket. The last failures are enough: a store that refuses one delete often refuses many.
        for failure in deletion.failures[-REPORTED_FAILURES:]:
            report.failed("unavailable", failure)

    async def _resume(self, steps: Steps, report: PassReport) -> None:
        """Finishes what an archiver that died, or was fenced, had begun."""
        async with autocommit(self._pool) as t:
            rows = await archive_reads.unfinished(t, size=UNFINISHED_PAGE)
        for row in rows:
            try:
                done = await steps.resume(row)
            except ObjectDiffers as error:
                report.failed("differs", error, row.log_day)
                continue
            if done:
                report.archived(done)

    async def _days(self) -> tuple[list[date], list[date]]:
        """Days that are older than their retention, and younger ones that go early because of the budget."""
        settings = self._settings.known
        async with archive_reads.long_query_tx(self._pool) as t:
            days = await archive_reads.days(t, retention_days=settings.whole("log_retention_days_db"))
            used = (await archive_reads.volume(t)).chunks / (settings["log_budget_db_gb"] * database_budget.GB)
            today, _ = await partitions.present(t, [])
        return database_budget.due_days(days), database_budget.early_days(days, used=used, today=today)

    async def _seal(self, day: date, epoch: int, report: PassReport) -> None:
        """Seals attempts that no executor will seal, with what the coordinators know of them."""
        off_seconds = self._settings.known["seal_after_seconds"]
        after = (0, 0)
        while True:
            async with autocommit(self._pool) as t:
                page = await archive_reads.open_tokens(t, day, after=after, size=TOKENS_PAGE)
            if not page:
                return
            after = page[-1]
            try:
                keys = [AttemptKey(run_id, token) for run_id, token in page]
                ended = await self._gateway.ended(day, keys, off_seconds=off_seconds)
            except TobanError as error:
                report.failed("coordinator", error, day)
                return
            self._steps.before_step("seal")
            async with archive_tx(self._pool, epoch) as a:
                sealed = await archive.seal(
                    a, day, [EndedToken(run_id=e.key.run_id, token=e.key.token, last_seq=e.last_seq) for e in ended]
                )
            if sealed:
                report.on_event(PassEvent(action="sealed", log_day=day, tokens=sealed))
                _log.info("attempts sealed for their executors", log_day=str(day), tokens=sealed)

    async def _packs(self, day: date) -> AsyncIterator[Sequence[ChunkFacts]]:
        packer: Packer[ChunkFacts] = Packer(self._limits.target_bytes)
        async for group in self._ready(day):
            async with archive_reads.long_query_tx(self._pool) as t:
                chunks = await archive_reads.chunks(t, day, group)
            for full in packer.add(chunks):
                yield full
        for rest in packer:
            yield rest

    async def _ready(self, day: date) -> AsyncIterator[list[TokenFacts]]:
        """Attempts that may be archived now, in groups whose chunks are read together."""
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
        wait = self._settings.known["seal_after_seconds"]
        after = (0, 0)
        while True:
            async with archive_reads.long_query_tx(self._pool) as t:
                page = await archive_reads.tokens(t, day, after=after, size=TOKENS_PAGE, wait_seconds=wait)
            for token in page:
                yield token if token.ready else await self._dropped_lines.ready(day, token)
            if len(page) < TOKENS_PAGE:
                return
            after = (page[-1].run_id, page[-1].token)

    async def _drop(self, day: date, epoch: int, report: PassReport) -> bool:
        async with archive_reads.long_query_tx(self._pool) as t:
            stored = await archive_reads.stored_day(t, day)
        if stored.open_chunks:
            return False
        self._steps.before_step("drop")
        try:
            async with archive_tx(self._pool, epoch) as a:
                dropped = await archive.drop_day(a, day)
                self._steps.before_step("drop_commit")
        except TooLong as error:
            _log.info("a day's table is in use", log_day=str(day), error=error.message, next_try_seconds=PASS_SECONDS)
            return False
        self._steps.before_step("dropped")
        if dropped:
            _dropped.inc()
            report.days += 1
            report.on_event(
                PassEvent(action="dropped", log_day=day, tokens=stored.tokens, chunks=stored.chunks, bytes=stored.bytes)
            )
            _log.info("a day left the database", log_day=str(day), chunks=stored.chunks)
        return dropped

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
