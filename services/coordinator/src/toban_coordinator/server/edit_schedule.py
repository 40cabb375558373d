"""What every edit of a schedule does before its own write: settles what is due, takes back runs of slots to come (docs/fencing.md 3.12).

An edit counts from the moment at which it holds the schedule's lock. Slots up to then belong to the schedule as it was, later ones to the
schedule as it will be; a slot whose run was sent a little before its time belongs to the former too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from toban_coordinator.decide import fire as decide
from toban_coordinator.loops.definitions import Definitions
from toban_coordinator.loops.metrics import count_finished
from toban_coordinator.loops.payloads import Payloads
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.firing import DueSchedule, FirePlan
from toban_domain.moves import Finish, Release
from toban_domain.run import RunState
from toban_schedule import Rule, ScheduleError, stretch
from toban_store.scheduler import ledger, runs_finish, schedules, schedules_edit
from toban_store.scheduler.runs_finish import Finished
from toban_store.scheduler.schedules_edit import AheadOfSlot, StoredSchedule
from toban_store.tx import Tx

# Plans that one edit settles: more due slots than these can hold make the edit wait for the fire loop.
MAX_PLANS = 20
# A schedule in one of these states makes no runs: its due slots are skipped with that reason.
_SKIPPED_STATUS: Mapping[str, str] = {"paused": "paused", "failed": "submit_failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Slots up to `until` are settled; the edited schedule counts `after` (`until`, or a later slot that was sent already)."""

    until: datetime
    after: datetime
    withdrawn: int

    def next_slot(self, rule: Rule) -> datetime | None:
        """The first slot of the schedule as it will be."""
        return rule.next_slot(self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEdit:
    """Edits of locked schedules inside one transaction. `why` is what the ledger and the withdrawn runs tell."""

    t: Tx
    now: datetime
    actor: str
    why: str
    finished: list[Finished] = field(default_factory=list)

    async def settle(self, old: StoredSchedule) -> Settled:
        """Every slot that is due by now gets its run or its ledger row, later ones are free. Raises UNAVAILABLE while too many are due."""
        rule = _rule(old)
        if old.status in _SKIPPED_STATUS:
            await self._pass_by(old, rule)
        else:
            await self._fire(old, rule)
        await self._shorten(old, rule)
        early = await schedules_edit.unstarted_ahead(self.t, old.id, self.now)
        await self._withdraw(old, early)
        sent = await ledger.last_fired(self.t, old.id, old.name, self.now)
        return Settled(until=self.now, after=max(self.now, sent or self.now), withdrawn=len(early))

    def count(self) -> None:
        """Counts the withdrawn runs; call it after the commit."""
        count_finished(self.finished)

    async def _fire(self, old: StoredSchedule, rule: Rule | None) -> None:
        due = old.due
        for _ in range(MAX_PLANS):
            if due.next_run_at is None or due.next_run_at > self.now:
                return
            plan = await self._plan(due, rule)
            await self._write(plan)
            due = replace(due, next_run_at=plan.next_run_at)
        raise TobanError(
            ErrorCode.UNAVAILABLE,
            f"schedule {old.name!r} still has many due slots to settle; try again in a moment",
        )

    async def _plan(self, due: DueSchedule, rule: Rule | None) -> FirePlan:
        key = (due.definition_id, due.definition_version)
        try:
            if rule is None:
                raise TobanError(ErrorCode.SCHEDULE_INVALID, "its rule cannot be read any more")
            job = await Definitions().get(self.t, key)
            template = decide.template(job, Payloads().make(key, job, due.spec.payload))
        except TobanError as error:
            return decide.pass_by(due, rule, until=self.now, outcome="submit_failed", message=error.message)
        return decide.plan(due, rule, template, now=self.now, until=self.now)

    async def _pass_by(self, old: StoredSchedule, rule: Rule | None) -> None:
        if old.due.next_run_at is None or old.due.next_run_at > self.now:
            return
        words = f"the schedule was {old.status}" + (f": {old.status_reason}" if old.status_reason else "")
        outcome = _SKIPPED_STATUS[old.status]
        # A year of seconds takes a while to count: not in the way of everything else.
        plan = await asyncio.to_thread(
            decide.pass_by, old.due, rule, until=self.now, outcome=outcome, message=words[:500]
        )
        await self._write(plan)

    async def _write(self, plan: FirePlan) -> None:
        if (await schedules.fire(self.t, [plan])).advanced != 1:
            raise changed(plan.schedule.spec.name)

    async def _shorten(self, old: StoredSchedule, rule: Rule | None) -> None:
        """Stretches that were skipped ahead of their time (of a disabled job) end now."""
        for first in await ledger.ahead(self.t, old.id, self.now):
            found = None
            if rule is not None and first <= self.now:
                found = await asyncio.to_thread(stretch, rule, first - decide.TICK, self.now)
            if found is None:
                await ledger.forget(self.t, old.id, first)
            else:
                await ledger.shorten(self.t, old.id, first, last=found.last, slots=found.slots)

    async def _withdraw(self, old: StoredSchedule, early: list[AheadOfSlot]) -> None:
        """Runs of future slots that were not sent go away; their slots are free for the schedule as it will be."""
        if not early:
            return
        await runs_finish.release(self.t, [self._release(run) for run in early if run.state is RunState.ASSIGNED])
        gone = await runs_finish.finish(
            self.t,
            [
                Finish(
                    run_id=run.id,
                    source=RunState.PENDING,
                    token=None,
                    target=RunState.SKIPPED,
                    reason="withdrawn",
                    message=f"its schedule was {self.why} before its time",
                    actor=self.actor,
                )
                for run in early
            ],
        )
        if len(gone) != len(early):
            raise changed(old.name)
        self.finished.extend(gone)
        await ledger.withdraw(
            self.t, old.id, [run.id for run in early], f"the schedule was {self.why} before this time"
        )

    def _release(self, run: AheadOfSlot) -> Release:
        return Release(
            run_id=run.id,
            source=run.state,
            token=run.token,
            attempt=run.attempt,
            lost_count=run.lost_count,
            event="released",
            message=f"its schedule was {self.why}",
        )


def changed(name: str) -> TobanError:
    """CONFLICT: somebody else was quicker."""
    return TobanError(
        ErrorCode.CONFLICT, f"schedule {name!r} was changed by somebody else at the same time; read it and try again"
    )


def state_of(old: StoredSchedule) -> dict[str, Any]:
    """A schedule as the log of operators' actions tells it."""
    return {
        "version": old.due.version,
        "status": old.status,
        **({"status_reason": old.status_reason} if old.status_reason else {}),
        "spec": old.due.spec.to_json(),
    }


def _rule(old: StoredSchedule) -> Rule | None:
    """The rule as stored; None when this version cannot read it, which must not keep anybody from mending it."""
    try:
        return Rule.of(old.due.spec.rule)
    except ScheduleError:
        return None
