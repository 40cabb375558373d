"""Loop `fire`: slots of the next seconds become runs, each with its ledger row, by compare-and-set on the schedule."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta

from toban_coordinator.decide import fire as decide
from toban_coordinator.decide.elect import MAX_SKEW_SECONDS
from toban_coordinator.loops import metrics
from toban_coordinator.loops.base import Done, LoopDeps
from toban_coordinator.loops.definitions import Definitions
from toban_coordinator.loops.payloads import Payloads
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.firing import DueSchedule, FirePlan
from toban_observability.logs import get_logger
from toban_schedule import Rule, ScheduleError
from toban_store.errors import Refused, TooLong
from toban_store.scheduler import schedules
from toban_store.tx import autocommit, fenced_tx

# Rows (runs and skips) that one fenced transaction makes: it has to stay far below its bound.
WRITE_ROWS = 500
KEPT_RULES = 20_000
_log = get_logger(__name__)


class Rules:
    """Compiled rules by (schedule, version of its row)."""

    def __init__(self) -> None:
        self._rules: OrderedDict[int, tuple[int, Rule]] = OrderedDict()

    def of(self, schedule: DueSchedule) -> Rule:
        """The rule of a schedule; raises ScheduleError when it cannot be read any more."""
        known = self._rules.get(schedule.id)
        if known is None or known[0] != schedule.version:
            known = (schedule.version, Rule.of(schedule.spec.rule))
            self._rules[schedule.id] = known
            while len(self._rules) > KEPT_RULES:
                self._rules.popitem(last=False)
        return known[1]


class Fire:
    """Reads due schedules, plans their slots, writes them in fenced batches; one that fails is split off and retried by itself."""

    def __init__(self, *, deps: LoopDeps, definitions: Definitions, payloads: Payloads) -> None:
        self._deps = deps
        self._definitions = definitions
        self._payloads = payloads
        self._rules = Rules()

    async def run_once(self) -> Done:
        """One turn. Raises CONFIG_INVALID while this machine's clock is off: runs and people would see wrong times."""
        self._refuse_when_off()
        now = self._deps.server_time.now()
        settings = await self._deps.settings.get()
        ahead, limit = settings["assign_ahead_seconds"], settings.whole("fire_batch_size")
        until = now + timedelta(seconds=ahead)
        async with autocommit(self._deps.pool) as t:
            due = await schedules.due(t, now, until, limit=limit)
            specs = await self._definitions.find(t, {(s.definition_id, s.definition_version) for s in due})
        plans: list[FirePlan] = []
        for schedule in due:
            key = (schedule.definition_id, schedule.definition_version)
            spec = specs.get(key)
            try:
                if spec is None:
                    raise TobanError(ErrorCode.INTERNAL, self._definitions.broken(key))
                payload = self._payloads.make(key, spec, schedule.spec.payload)
                rule = self._rules.of(schedule)
                plans.append(decide.plan(schedule, rule, decide.template(spec, payload), now=now, until=until))
            except (TobanError, ScheduleError) as error:
                await self._failed(schedule, str(error))
            # Long stretches of missed slots take a while to walk.
            await asyncio.sleep(0)
        made = 0
        for batch in _batches(plans):
            made += await self._write(batch, now)
        return Done(made, await self._next_in(plans, until, full=len(due) >= limit))

    def _refuse_when_off(self) -> None:
        skew = self._deps.server_time.skew_seconds
        if abs(skew) > MAX_SKEW_SECONDS:
            raise TobanError(
                ErrorCode.CONFIG_INVALID,
                f"this machine's clock is {skew:+.1f} s off PostgreSQL's, more than {MAX_SKEW_SECONDS:g} s: it fires nothing; "
                "synchronise both clocks (chrony, ntpd)",
            )

    async def _write(self, plans: Sequence[FirePlan], now: datetime) -> int:
        """One fenced transaction; when PostgreSQL refuses it, halves of it, until the bad one is alone."""
        try:
            async with fenced_tx(self._deps.pool, self._deps.term) as t:
                fired = await schedules.fire(t, plans)
                if fired.made:
                    await t.notify("assign")
        except (Refused, TooLong) as error:
            if len(plans) == 1:
                if isinstance(error, TooLong):
                    raise
                await self._failed(plans[0].schedule, error.message)
                return 0
            middle = len(plans) // 2
            return await self._write(plans[:middle], now) + await self._write(plans[middle:], now)
        for plan in plans:
            for slot in plan.fires:
                metrics.slot_lag.observe(max(0.0, (now - slot).total_seconds()))
        return fired.made

    async def _failed(self, schedule: DueSchedule, error: str) -> None:
        failures = schedule.fire_retry_count + 1
        final = failures > decide.FIRE_RETRIES
        delay = decide.retry_seconds(failures)
        _log.error(
            "schedule cannot fire",
            schedule=schedule.spec.name,
            attempt=failures,
            error=error,
            next_try_seconds=None if final else delay,
        )
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            await schedules.fire_failed(t, schedule, error[:500], delay_seconds=delay, final=final)

    async def _next_in(self, plans: Sequence[FirePlan], until: datetime, *, full: bool) -> float | None:
        """At once while something in view is left; else when the next slot comes into view."""
        if full or any(plan.next_run_at is not None and plan.next_run_at <= until for plan in plans):
            return 0.0
        async with autocommit(self._deps.pool) as t:
            at = await schedules.next_slot(t)
        return None if at is None else max(0.01, (at - until).total_seconds())


def _batches(plans: Sequence[FirePlan]) -> list[list[FirePlan]]:
    batches: list[list[FirePlan]] = []
    rows = WRITE_ROWS
    for plan in plans:
        size = 1 + len(plan.fires) + len(plan.skips)
        if rows + size > WRITE_ROWS:
            batches.append([])
            rows = 0
        batches[-1].append(plan)
        rows += size
    return batches
