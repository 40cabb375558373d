"""Loop `audit`: gives new rows of the audit their place in its hash chain, and checks the whole chain from time to time."""

from __future__ import annotations

from toban_coordinator.app.adaptive_batch import AdaptiveBatch
from toban_coordinator.app.cluster.audit_verify import PART_BYTES, READ_ROWS, Checked, check_part
from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.pending_work import Agenda
from toban_domain.audit_chain import START, Mark, Problem
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_store.errors import StoreError, TooLong
from toban_store.tx import autocommit, fenced_tx

TICK_SECONDS = 2.0
# Rows of one fenced write, and writes of one turn.
ROWS = 500
TURN_BATCHES = 20
AGAIN_SECONDS = 0.5
# Rows of a verification that one turn checks, if they are not large, and the time until the next part of it.
TURN_ROWS = 20_000
NEXT_PART_SECONDS = 0.1
# From the end of one verification to the beginning of the next.
VERIFY_SECONDS = 3600.0
# Problems of one verification that the log names.
NAMED = 10
_log = get_logger(__name__)

chained_rows = metrics.counter(
    "toban_audit_chained_total", "Rows of the audit that were given their place in its hash chain."
)
verified_rows = metrics.counter(
    "toban_audit_verified_total", "Rows of the audit that were checked against the hash chain."
)
unchained_seconds = metrics.leader_gauge(
    "toban_audit_unchained_seconds",
    "Age of the oldest row of the audit that is not in its hash chain yet; 0 without one.",
)
problems = metrics.leader_gauge(
    "toban_audit_problems",
    "Changed, missing or inserted rows of the audit that the last verification found, or the present one so far.",
)


class AuditChain:
    """A verification begins with each term, and an hour after the one before; it goes on in small parts between other turns. What it found is kept
    in PostgreSQL, so that a problem stays known while the next leader verifies."""

    def __init__(self, *, deps: LoopDeps) -> None:
        self._deps = deps
        self._batch = AdaptiveBatch(ROWS)
        self._reading = AdaptiveBatch(READ_ROWS)
        self._at: Mark | None = START
        self._found: list[Problem] = []
        self._rows = 0
        self._next = 0.0
        # What the verification before this one found, None = not read yet.
        self._last: int | None = None

    def idle_turn(self, agenda: Agenda) -> TurnOutcome | None:
        """A turn without work; None when rows wait for their place, or rows are to be checked."""
        return None if agenda.unchained or self._verifying() else TurnOutcome()

    async def run_once(self) -> TurnOutcome:
        """One turn. Rows that cannot be chained do not keep the others from being checked; the turn fails all the same."""
        if self._last is None:
            async with autocommit(self._deps.pool) as t:
                self._last = await audit.verdict(t)
            problems.set(self._last)
        chained, more, failed = 0, False, None
        try:
            chained, more = await self._chain()
        except StoreError as error:
            failed = error
            await self._look_for_ends()
        if self._verifying():
            await self._verify(self._last)
        if failed is not None:
            raise failed
        return TurnOutcome(chained, NEXT_PART_SECONDS if self._at is not None else AGAIN_SECONDS if more else None)

    async def _chain(self) -> tuple[int, bool]:
        """How many rows got their place, and whether more wait."""
        total = 0
        if not await self._wait():
            return 0, False
        try:
            for _ in range(TURN_BATCHES):
                most = self._batch.size
                async with fenced_tx(self._deps.pool, self._deps.term) as t:
                    done = await audit.chain(t, most=most)
                total += done
                chained_rows.inc(done)
                self._batch.fitted(done)
                if done < most:
                    unchained_seconds.set(0.0)
                    return total, False
        except TooLong:
            if self._batch.size == 1:
                raise
            self._batch.too_long(self._batch.size)
        return total, await self._wait()

    async def _wait(self) -> bool:
        """Whether rows wait for their place, which is known to the metric also when they do not get it."""
        async with autocommit(self._deps.pool) as t:
            seconds = await audit.oldest_unchained(t)
        unchained_seconds.set(seconds or 0.0)
        return seconds is not None

    async def _look_for_ends(self) -> None:
        """Without its ends, which an administrator of PostgreSQL can remove, nothing can be chained: a verification finds that now."""
        async with autocommit(self._deps.pool) as t:
            if not self._last and not await audit.has_ends(t):
                self._begin()

    def _verifying(self) -> bool:
        if self._at is None and self._deps.clock.monotonic() >= self._next:
            self._begin()
        return self._at is not None

    def _begin(self) -> None:
        self._at, self._found, self._rows = START, [], 0

    async def _verify(self, last: int) -> None:
        """Some parts."""
        known, goal, size = max(len(self._found), last), self._rows + TURN_ROWS, 0
        while self._at is not None and self._rows < goal and size < PART_BYTES:
            try:
                async with autocommit(self._deps.pool) as t:
                    part = await check_part(t, self._at, limit=self._reading.size)
            except TooLong:
                if self._reading.size == 1:
                    raise
                self._reading.too_long(self._reading.size)
                break
            size += part.size
            self._reading.fitted(part.rows)
            self._note(part)
        if self._at is None:
            await self._keep(len(self._found))
            self._last = len(self._found)
            self._next = self._deps.clock.monotonic() + VERIFY_SECONDS
        elif len(self._found) > known:
            await self._keep(len(self._found))

    def _note(self, part: Checked) -> None:
        verified_rows.inc(part.rows)
        self._rows += part.rows
        for problem in part.problems[: max(0, NAMED - len(self._found))]:
            _log.error("the audit was tampered with", kind=problem.kind, problem=problem.message)
        self._found += part.problems
        self._at = part.after
        if part.after is not None:
            return
        if self._found:
            message = "the audit was tampered with: its verification has ended and found rows that do not fit; `toban audit verify` lists them"
            _log.error(message, rows=self._rows, problems=len(self._found), head=str(part.head))
        else:
            # Who keeps the log elsewhere can prove by the head that older rows are the same.
            _log.info("audit verified", rows=self._rows, head=str(part.head))

    async def _keep(self, found: int) -> None:
        problems.set(found)
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            await audit.note_verdict(t, found)
