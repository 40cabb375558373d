"""Loop `fire`: slots of the next seconds become runs, each with its ledger row, by compare-and-set on the schedule."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cachetools import LRUCache

from toban_coordinator.app import metrics
from toban_coordinator.app.adaptive_batch import AdaptiveBatch, Write, split_on_refusal, write_alone
from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.large_payload import with_large_checks
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.decide.cluster.leader_health import MAX_SKEW_SECONDS
from toban_coordinator.decide.schedules import fire as decide
from toban_coordinator.decide.schedules import skipped_slots
from toban_coordinator.loops.fire_progress import WRITE_ROWS, Failure, Progress, first_batch, log_failures, rows_of
from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.store.pending_work import Agenda
from toban_coordinator.store.schedules import schedules
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.fire_plan import DueSchedule, FirePlan, RunTemplate
from toban_domain.job import JobSpec
from toban_observability.logs import get_logger
from toban_runtime.cooperative_yield import CooperativeYield
from toban_schedule import Rule, ScheduleError
from toban_store.errors import Refused, TooLong
from toban_store.tx import autocommit, fenced_tx

KEPT_RULES = 20_000
# What could not be settled because an edit holds it, or was quicker, is looked at again after this: edits take milliseconds.
BEHIND_SECONDS = 0.05
# Pages of `fire_batch_size` schedules that one turn settles.
PAGES = 20
# Pages that are written at a time: one waits for PostgreSQL while this process prepares or ends the other.
WRITES = 2
# Rows that one turn makes for schedules with missed slots: what has become due meanwhile goes first in the next turn.
MISSED_ROWS = 1000
# While missed slots are caught up, those of now are looked for this often: they are made ahead of their time. Seconds.
NOW_SECONDS = 5.0
# A schedule of which one slot alone takes too long waits so long and lets the others fire, seconds.
POSTPONE_SECONDS = 30.0
# How long the runs of a slot are counted, so that those that are made later are spread with the others, seconds.
SPREAD_KEPT_SECONDS = 60.0
# More of them in one turn mean that PostgreSQL is slow, and not they.
MAX_POSTPONED = 5
# What one bad plan can make of a write: it is split off.
_BAD: tuple[type[Exception], ...] = (Refused, TypeError, ValueError)
_REFUSALS: tuple[type[Exception], ...] = (TooLong, *_BAD)
_log = get_logger(__name__)


class RuleCache:
    """Compiled rules by (schedule, version of its row)."""

    def __init__(self) -> None:
        self._rules: LRUCache[int, tuple[int, Rule]] = LRUCache(KEPT_RULES)

    def of(self, schedule: DueSchedule) -> Rule:
        """The rule of a schedule; raises ScheduleError when it cannot be read any more."""
        known = self._rules.get(schedule.id)
        if known is None or known[0] != schedule.version:
            known = (schedule.version, decide.rule_of(schedule))
            self._rules[schedule.id] = known
        return known[1]


class Fire:
    """Reads due schedules, plans their slots, writes them in fenced batches; one that fails is split off and retried by itself."""

    def __init__(self, *, deps: LoopDeps, definitions: DefinitionCache, payloads: PayloadValidator) -> None:
        self._deps = deps
        self._definitions = definitions
        self._payloads = payloads
        self._rules = RuleCache()
        self._spread = decide.Spread()
        self._rows = AdaptiveBatch(WRITE_ROWS, least=2)
        self._now_at = 0.0

    async def run_once(self) -> TurnOutcome:
        """One turn. Raises CONFIG_INVALID while this machine's clock is off: runs and people would see wrong times."""
        self._refuse_when_off()
        now = self._deps.server_time.now()
        settings = await self._deps.settings.get()
        ahead, limit = settings["assign_ahead_seconds"], settings.whole("fire_batch_size")
        until = now + timedelta(seconds=ahead)
        made, progress = 0, Progress()
        self._spread.forget(now - timedelta(seconds=SPREAD_KEPT_SECONDS))
        writing: list[asyncio.Task[int]] = []
        try:
            # While pages are written the next one is read and planned.
            for _ in range(PAGES):
                if progress.missed:
                    made += await _all_but(0, writing)
                    made += await self._make_now(now, until, limit)
                due, specs = await self._read(progress, now, until, limit)
                if any(_is_missed(schedule, now) for schedule in due):
                    # Long scans between its messages would keep the fenced write waiting beyond its bound.
                    made += await _all_but(0, writing)
                plans = await self._plan_all(progress, due, specs, now, until)
                made += await _all_but(WRITES - 1, writing)
                write = self._write_all(progress, plans, now, until)
                writing.append(asyncio.create_task(write, name="fire: write a page"))
                if not progress.more:
                    break
            made += await _all_but(0, writing)
        except BaseException:
            for task in writing:
                task.cancel()
            await asyncio.gather(*writing, return_exceptions=True)
            raise
        finally:
            log_failures(progress.failures)
        if made:
            # Once, at the end: rows come first, then their starts, which want the same database.
            async with autocommit(self._deps.pool) as t:
                await t.notify("assign")
        return TurnOutcome(made, await self._next_in(progress, until))

    def idle_turn(self, agenda: Agenda) -> TurnOutcome | None:
        """A turn without work; None when a slot is in view. Raises as `run_once` while this machine's clock is off."""
        self._refuse_when_off()
        if agenda.fire:
            return None
        until = self._deps.server_time.now() + timedelta(seconds=self._deps.settings.known["assign_ahead_seconds"])
        return TurnOutcome(0, _seconds_to(agenda.next_slot, until))

    async def _read(
        self, progress: Progress, now: datetime, until: datetime, limit: int
    ) -> tuple[list[DueSchedule], dict[tuple[int, int], JobSpec]]:
        """The next schedules that are due, with their definitions: those with missed slots come last."""
        oldest = now - timedelta(seconds=decide.MISSED_AFTER_SECONDS)
        async with autocommit(self._deps.pool) as t:
            if progress.missed:
                due = await schedules.due(t, now, oldest - decide.INSTANT, limit=limit, after=progress.last)
                progress.made = await schedules.made_slots(t, due)
            else:
                due = await schedules.due(t, now, until, limit=limit, after=progress.last, since=oldest)
            specs = await self._definitions.find(t, {(s.definition_id, s.definition_version) for s in due})
        progress.last, progress.more = (due[-1] if due else None), len(due) >= limit
        if not progress.more and not progress.missed:
            progress.last, progress.more, progress.missed = None, True, True
        return due, specs

    async def _make_now(self, now: datetime, until: datetime, limit: int) -> int:
        """Slots that are due now of schedules that have missed others go before all missed ones, where no policy orders the runs of a schedule.

        How many runs were made.
        """
        if self._deps.clock.monotonic() < self._now_at:
            return 0
        self._now_at = self._deps.clock.monotonic() + NOW_SECONDS
        progress, made = Progress(missed=True, more=True), 0
        pause = CooperativeYield(self._deps.clock)
        try:
            while progress.more:
                due, specs = await self._read(progress, now, until, limit)
                free = [one for one in due if _is_unordered(specs.get((one.definition_id, one.definition_version)))]
                plans = []
                for one in free:
                    plans.append(await self._plan(progress, one, specs, now, until, at_once=True))
                    await pause.yield_if_due()
                made += await self._write_all(progress, [plan for plan in plans if plan is not None], now, until)
        finally:
            log_failures(progress.failures)
        return made

    async def _plan_all(
        self,
        progress: Progress,
        due: Sequence[DueSchedule],
        specs: Mapping[tuple[int, int], JobSpec],
        now: datetime,
        until: datetime,
    ) -> list[FirePlan]:
        plans: list[FirePlan] = []
        pause = CooperativeYield(self._deps.clock)
        for schedule in due:
            plan = await self._plan(progress, schedule, specs, now, until)
            if plan is not None:
                plans.append(plan)
                if _is_missed(schedule, now):
                    progress.rows += rows_of(plan)
            if progress.rows >= MISSED_ROWS:
                progress.more, progress.left = False, True
                break
            await pause.yield_if_due()
        return plans

    async def _plan(
        self,
        progress: Progress,
        schedule: DueSchedule,
        specs: Mapping[tuple[int, int], JobSpec],
        now: datetime,
        until: datetime,
        *,
        at_once: bool = False,
    ) -> FirePlan | None:
        """What becomes of one schedule's slots, `at_once`: of those that are due now alone. None when it cannot fire, which is noted."""
        key = (schedule.definition_id, schedule.definition_version)
        spec = specs.get(key)
        try:
            rule = self._rules.of(schedule)
            if spec is None:
                raise TobanError(ErrorCode.INTERNAL, self._definitions.broken(key))
            made_from = await self._template(key, spec, schedule, schedule.next_run_at or now)
            made = progress.made.get(schedule.id, ())
            if at_once:
                plan = decide.plan_now(schedule, rule, made_from, now=now, until=until, made=made)
            else:
                plan = decide.plan(schedule, rule, made_from, now=now, until=until, made=made)
            if plan is None:
                return None
            if schedule.spec.has_template:
                own = {slot: await self._template(key, spec, schedule, slot) for slot in plan.fires}
                plan = replace(plan, own=own)
            settings = self._deps.settings.known
            return self._spread.spread(
                plan,
                batch=settings.whole("fire_batch_size"),
                delay_seconds=settings["fire_batch_delay_seconds"],
                now=now,
            )
        except Exception as error:
            # Whatever it is: it is wrong with this one schedule, and the others go on.
            await self._failed(progress, schedule, error)
            return None

    async def _template(
        self, key: tuple[int, int], spec: JobSpec, schedule: DueSchedule, slot: datetime
    ) -> RunTemplate:
        async def make() -> str:
            return self._payloads.make(key, spec, schedule.spec.payload_at(slot))

        return decide.template(spec, await with_large_checks(make), schedule)

    async def _write_all(self, progress: Progress, plans: Sequence[FirePlan], now: datetime, until: datetime) -> int:
        made, rest = 0, plans
        while rest:
            batch, rest = first_batch(rest, self._rows.size)
            made += await self._write(progress, batch, now, until)
        return made

    def _refuse_when_off(self) -> None:
        skew = self._deps.server_time.skew_seconds
        if abs(skew) > MAX_SKEW_SECONDS:
            raise TobanError(
                ErrorCode.CONFIG_INVALID,
                f"this machine's clock is {skew:+.1f} s off PostgreSQL's, more than {MAX_SKEW_SECONDS:g} s: it fires nothing; "
                "synchronise both clocks (chrony, ntpd)",
            )

    async def _write(self, progress: Progress, plans: Sequence[FirePlan], now: datetime, until: datetime) -> int:
        """One fenced transaction; when PostgreSQL refuses it, halves of it, until the bad one is alone, and then parts of its slots.

        How many runs were made.
        """
        committed: list[tuple[Sequence[FirePlan], schedules.Fired]] = []

        async def write(part: Sequence[FirePlan]) -> None:
            rows = sum(map(rows_of, part))
            try:
                async with fenced_tx(self._deps.pool, self._deps.term) as t:
                    fired = await schedules.fire(t, part)
            except TooLong:
                self._rows.too_long(rows)
                raise
            self._rows.fitted(rows)
            committed.append((part, fired))

        async def alone(plan: FirePlan, error: Exception) -> None:
            if not isinstance(error, TooLong):
                await self._failed(progress, plan.schedule, error)
                return
            parts = decide.cut(plan)
            for part in parts:
                await split_on_refusal([part], write, alone, refusals=_REFUSALS)
            if not parts:
                await self._write_alone(progress, plan, write)

        try:
            await split_on_refusal(plans, write, alone, refusals=_REFUSALS)
        finally:
            # After the commits: an error here is no refusal, and must not fire a part again.
            for part, fired in committed:
                self._note(progress, [plan for plan in part if plan.schedule.id in fired.advanced], now, until)
                progress.behind += len(part) - len(fired.advanced)
        return sum(fired.made for _, fired in committed)

    async def _write_alone(self, progress: Progress, plan: FirePlan, write: Write[FirePlan]) -> None:
        """One slot that took too long; PostgreSQL may refuse it as soon as it gets to it."""
        try:
            slow = await write_alone(plan, write, faults=TooLong)
        except _BAD as error:
            await self._failed(progress, plan.schedule, error)
        else:
            if slow is not None:
                await self._postpone(progress, plan.schedule, slow)

    def _note(self, progress: Progress, plans: Sequence[FirePlan], now: datetime, until: datetime) -> None:
        progress.settled += len(plans)
        for plan in plans:
            progress.left = progress.left or (plan.next_run_at is not None and plan.next_run_at <= until)
            metrics.count_settled(plan, now)
            for slot in plan.fires:
                self._deps.on_fired(slot)

    async def _failed(self, progress: Progress, schedule: DueSchedule, cause: Exception) -> None:
        failures = schedule.fire_retry_count + 1
        final = failures > decide.FIRE_RETRIES
        delay = decide.retry_seconds(failures)
        expected = isinstance(cause, (TobanError, ScheduleError))
        error = str(cause) if expected else f"cannot be planned ({type(cause).__name__}: {cause}); apply it again"
        removed = final and schedule.removed_on_failure
        metrics.fire_failures.labels("removed" if removed else "failed" if final else "retry").inc()
        progress.failures.append(
            Failure(schedule, failures, error, None if final else delay, None if expected else cause)
        )
        # A stretch of days takes a while to count: not in the way of everything else.
        last, slots = await asyncio.to_thread(self._due_slots, schedule) if removed else (None, 0)
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            noted = await schedules.fire_failed(t, schedule, error[:500], delay_seconds=delay, final=final)
            if noted and last is not None:
                await schedules.remove_failed(t, schedule, last=last, slots=slots)
        progress.behind += not noted

    def _due_slots(self, schedule: DueSchedule) -> tuple[datetime | None, int]:
        """The slots that are due, the failed one at least: the last, and how many."""
        try:
            counted = skipped_slots.count(schedule, decide.rule_of(schedule), self._deps.server_time.now())
        except ScheduleError:
            return schedule.next_run_at, 1
        return counted.last, counted.slots

    async def _postpone(self, progress: Progress, schedule: DueSchedule, cause: TooLong) -> None:
        """One slot alone does not fit into a fenced transaction: the schedule waits, and is never given up for that."""
        progress.postponed += 1
        if progress.postponed > MAX_POSTPONED:
            raise cause
        error = f"one slot alone takes too long to be written: {cause.message}"
        metrics.fire_failures.labels("retry").inc()
        progress.failures.append(Failure(schedule, schedule.fire_retry_count, error, POSTPONE_SECONDS, None))
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            noted = await schedules.fire_failed(
                t, schedule, error[:500], delay_seconds=POSTPONE_SECONDS, final=False, counted=False
            )
        progress.behind += not noted

    async def _next_in(self, progress: Progress, until: datetime) -> float | None:
        """At once while something in view is left and gets further; soon for what an edit holds; else when the next slot comes into view."""
        if (progress.more or progress.left) and (progress.settled or not progress.behind):
            return 0.0
        if progress.behind:
            return BEHIND_SECONDS
        async with autocommit(self._deps.pool) as t:
            at = await schedules.next_slot(t)
        return _seconds_to(at, until)


async def _all_but(left: int, writing: list[asyncio.Task[int]]) -> int:
    """Awaits the oldest writes until `left` of them are under way; how many runs they made."""
    made = 0
    while len(writing) > left:
        made += await writing[0]
        del writing[0]
    return made


def _seconds_to(slot: datetime | None, until: datetime) -> float | None:
    """When a slot comes into view, in seconds."""
    return None if slot is None else max(0.01, (slot - until).total_seconds())


def _is_missed(schedule: DueSchedule, now: datetime) -> bool:
    """True when it has slots that passed while there was no leader: a long stretch to scan."""
    oldest = now - timedelta(seconds=decide.MISSED_AFTER_SECONDS)
    return schedule.next_run_at is not None and schedule.next_run_at < oldest


def _is_unordered(spec: JobSpec | None) -> bool:
    """True when the runs of one schedule may start in any order, and beside each other."""
    return spec is not None and spec.concurrency.policy_for("slot") == "allow"
