"""Before an edit of schedules: each slot that is due gets its run or its row in the ledger, many locked schedules in one statement."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.large_payload import CheckPending
from toban_coordinator.app.named_objects import changed
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.schedules.slot_counting import Counts, Uncounted
from toban_coordinator.app.write_batches import WriteBatches
from toban_coordinator.decide.schedules import fire as decide
from toban_coordinator.decide.schedules.skipped_slots import has_to_be_counted, pass_by
from toban_coordinator.store.schedules import schedules
from toban_coordinator.store.schedules.schedules_edit import StoredSchedule
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.fire_plan import DueSchedule, FirePlan, RunTemplate
from toban_domain.job import JobSpec
from toban_runtime.clock import SystemClock
from toban_runtime.cooperative_yield import CooperativeYield
from toban_schedule import Rule, ScheduleError
from toban_store.tx import Tx

# Plans of one schedule that one edit settles: more due slots than these can hold make the edit wait for the fire loop.
MAX_PLANS = 20
# A schedule in one of these states makes no runs: its due slots are skipped with that reason.
_SKIPPED_STATUS: Mapping[str, str] = {"paused": "paused", "failed": "submit_failed"}


class DueSlots:
    """Of one edit, which counts as `now`; `counts` are those of long stretches, `written` the plans that were carried out."""

    def __init__(self, t: Tx, now: datetime, counts: Counts) -> None:
        self._t = t
        self._now = now
        self._counts = counts
        self._definitions = DefinitionCache()
        self._payloads = PayloadValidator()
        self._specs: Mapping[tuple[int, int], JobSpec] = {}
        self._made: Mapping[int, Collection[datetime]] = {}
        self._long: list[tuple[DueSchedule, Rule]] = []
        self.written: list[FirePlan] = []

    async def settle(self, olds: Sequence[StoredSchedule]) -> None:
        """Every slot up to now. Raises UNAVAILABLE while too many are due, Uncounted when long stretches have to be counted first."""
        left = [old for old in olds if old.due.next_run_at is not None and old.due.next_run_at <= self._now]
        if left:
            keys = {(old.due.definition_id, old.due.definition_version) for old in left}
            self._specs = await self._definitions.find(self._t, keys)
            self._made = await schedules.made_slots(self._t, [old.due for old in left])
        for _ in range(MAX_PLANS):
            if not left:
                return
            left = await self._round(left)
        raise TobanError(
            ErrorCode.UNAVAILABLE,
            f"schedule {left[0].name!r} still has many due slots to settle; try again in a moment",
        )

    async def _round(self, olds: Sequence[StoredSchedule]) -> list[StoredSchedule]:
        """One plan of each; answers those that have due slots left."""
        left: list[StoredSchedule] = []
        batches, pause = WriteBatches(self._write), CooperativeYield(SystemClock())
        for old in olds:
            plan = self._plan(old)
            if plan is None:
                await pause.yield_if_due()
                continue
            if plan.next_run_at is not None and plan.next_run_at <= self._now:
                left.append(replace(old, due=replace(old.due, next_run_at=plan.next_run_at)))
            await batches.add(plan, 1 + len(plan.fires) + len(plan.skips))
        if self._long:
            raise Uncounted(self._long, self._now)
        await batches.close()
        return left

    def _plan(self, old: StoredSchedule) -> FirePlan | None:
        """None when its stretch has to be counted first, which is noted."""
        rule = rule_or_none(old)
        if old.status in _SKIPPED_STATUS:
            words = f"the schedule was {old.status}" + (f": {old.status_reason}" if old.status_reason else "")
            return self._pass_by(old.due, rule, _SKIPPED_STATUS[old.status], words[:500])
        key = (old.due.definition_id, old.due.definition_version)
        try:
            if rule is None:
                raise TobanError(ErrorCode.SCHEDULE_INVALID, old.due.broken or "its rule cannot be read any more")
            if key not in self._specs:
                raise TobanError(ErrorCode.INTERNAL, self._definitions.broken(key))
            made_from = self._template(key, old.due, old.due.next_run_at or self._now)
            made = self._made.get(old.due.id, ())
            plan = decide.plan(old.due, rule, made_from, now=self._now, until=self._now, made=made)
            own = {slot: self._template(key, old.due, slot) for slot in plan.fires} if old.due.spec.has_template else {}
        except CheckPending:
            raise
        except TobanError as error:
            return self._pass_by(old.due, rule, "submit_failed", error.message[:500])
        return replace(plan, own=own)

    def _template(self, key: tuple[int, int], due: DueSchedule, slot: datetime) -> RunTemplate:
        spec = self._specs[key]
        return decide.template(spec, self._payloads.make(key, spec, due.spec.payload_at(slot)), due)

    def _pass_by(self, due: DueSchedule, rule: Rule | None, outcome: str, message: str) -> FirePlan | None:
        counted = self._counts.get(due.id)
        if rule is not None and has_to_be_counted(due, rule, counted, self._now):
            self._long.append((due, rule))
            return None
        return pass_by(due, rule, until=self._now, outcome=outcome, message=message, counted=counted)

    async def _write(self, plans: Sequence[FirePlan]) -> None:
        advanced = (await schedules.fire(self._t, plans)).advanced
        for plan in plans:
            if plan.schedule.id not in advanced:
                raise changed("schedule", plan.schedule.spec.name)
        self.written.extend(plans)


def rule_or_none(old: StoredSchedule) -> Rule | None:
    """The rule as stored; None when this version cannot read it, which must not keep an operator from correcting it."""
    try:
        return decide.rule_of(old.due)
    except ScheduleError:
        return None
