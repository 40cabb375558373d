"""What every edit of a schedule does before its own write: settles what is due, takes back runs of slots to come (docs/fencing.md 3.12).

An edit counts from the moment at which it holds the schedule's lock. Slots up to then belong to the schedule as it was, later ones to the
schedule as it will be; a slot whose run was sent a little before its time belongs to the former too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from toban_coordinator.app.metrics import count_finished, count_settled
from toban_coordinator.app.named_objects import changed
from toban_coordinator.app.schedules.edit_due_slots import DueSlots, rule_or_none
from toban_coordinator.app.schedules.slot_counting import Counts
from toban_coordinator.app.write_batches import BATCH_ROWS, WriteBatches
from toban_coordinator.decide.schedules.skipped_slots import TICK
from toban_coordinator.store.runs import runs_finish
from toban_coordinator.store.runs.runs_finish import Finished
from toban_coordinator.store.schedules import fire_ledger, schedules_edit
from toban_coordinator.store.schedules.fire_ledger import Shortened
from toban_coordinator.store.schedules.schedules_edit import AheadOfSlot, StoredSchedule
from toban_domain.fire_plan import FirePlan
from toban_domain.redacted import masked_payload_of
from toban_domain.run import RunState
from toban_domain.transitions import Finish, Release
from toban_schedule import Rule, count_slots
from toban_store.tx import Tx


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
    """Edits of locked schedules inside one transaction. `why` is what the ledger and the withdrawn runs tell ("paused"); `why_of` of some
    schedules, by id, something else. `counts` are the counted slots of long stretches."""

    t: Tx
    now: datetime
    actor: str
    why: str
    counts: Counts
    why_of: Mapping[int, str] = field(default_factory=dict)
    finished: list[Finished] = field(default_factory=list)
    plans: list[FirePlan] = field(default_factory=list)

    async def settle(self, olds: Sequence[StoredSchedule]) -> dict[int, Settled]:
        """Every slot that is due by now gets its run or its ledger row, later ones are free; by id of the schedule.

        Raises UNAVAILABLE while too many are due, Uncounted when long stretches have to be counted first.
        """
        if not olds:
            return {}
        due = DueSlots(self.t, self.now, self.counts)
        await due.settle(olds)
        self.plans.extend(due.written)
        await self._shorten({old.id: old for old in olds})
        early = await schedules_edit.unstarted_ahead(self.t, [old.id for old in olds], self.now)
        names = {old.id: old.name for old in olds}
        for start in range(0, len(early), BATCH_ROWS):
            await self._withdraw(early[start : start + BATCH_ROWS], names)
        sent = await fire_ledger.last_fired(self.t, names, self.now)
        taken = Counter(run.schedule_id for run in early)
        # The end of a disable that the leader comes late for may be before a schedule was made: that has no slots from then.
        begin = {old.id: max(self.now, old.created_at) for old in olds}
        return {
            id_: Settled(until=self.now, after=max(begin[id_], sent.get(id_, begin[id_])), withdrawn=taken[id_])
            for id_ in names
        }

    def count(self) -> None:
        """Counts the withdrawn runs and the settled slots; call it after the commit."""
        count_finished(self.finished)
        for plan in self.plans:
            count_settled(plan, self.now)

    async def _shorten(self, olds: Mapping[int, StoredSchedule]) -> None:
        """Stretches that were skipped ahead of their time (of a disabled job) end now: one is as long as one plan, never longer."""
        shorter = WriteBatches[Shortened](lambda found: fire_ledger.shorten(self.t, found))
        gone: list[tuple[int, datetime]] = []
        for schedule_id, first in await fire_ledger.ahead(self.t, list(olds), self.now):
            rule = rule_or_none(olds[schedule_id])
            found = count_slots(rule, first - TICK, self.now) if rule is not None and first <= self.now else None
            if found is None:
                gone.append((schedule_id, first))
            else:
                await shorter.add(Shortened(schedule_id, first, found.last, found.slots))
        await shorter.close()
        if gone:
            await fire_ledger.forget(self.t, gone)

    async def _withdraw(self, early: Sequence[AheadOfSlot], names: Mapping[int, str]) -> None:
        """Runs of future slots that were not sent go away; their slots are free for the schedule as it will be."""
        await runs_finish.release(self.t, [self._release(run) for run in early if run.state is RunState.ASSIGNED])
        gone = await runs_finish.finish(self.t, [self._finish(run) for run in early])
        if len(gone) != len(early):
            missing = {run.id for run in early} - {run.id for run in gone}
            raise changed("schedule", next(names[run.schedule_id] for run in early if run.id in missing))
        self.finished.extend(gone)
        messages = [f"the schedule was {self._why(run)} before this time" for run in early]
        await fire_ledger.withdraw(self.t, early, messages)

    def _why(self, run: AheadOfSlot) -> str:
        return self.why_of.get(run.schedule_id, self.why)

    def _finish(self, run: AheadOfSlot) -> Finish:
        return Finish(
            run_id=run.id,
            source=RunState.PENDING,
            token=None,
            target=RunState.SKIPPED,
            reason="withdrawn",
            message=f"its schedule was {self._why(run)} before its time",
            actor=self.actor,
        )

    def _release(self, run: AheadOfSlot) -> Release:
        return Release(
            run_id=run.id,
            source=run.state,
            token=run.token,
            attempt=run.attempt,
            lost_count=run.lost_count,
            event="released",
            message=f"its schedule was {self._why(run)}",
        )


def state_of(old: StoredSchedule, slots: datetime, hidden: Collection[str] = ()) -> dict[str, Any]:
    """A schedule before an edit, as the audit has it: without values that its job, or one of the names in `hidden`, hides.

    `slots`: those up to there are of this version.
    """
    return {
        "version": old.due.version,
        "status": old.status,
        "status_reason": old.status_reason,
        "paused_until": old.paused_until.isoformat() if old.paused_until else None,
        **({"broken": old.due.broken} if old.due.broken else {}),
        "spec": masked_payload_of(old.due.spec.to_json(), {*old.redact, *hidden}),
        "slots": f"until {slots.isoformat()}",
    }


def slots_after(settled_until: datetime) -> dict[str, str]:
    """What the audit has of a schedule after an edit, instead of the `slots` before: those later than this are of the new version."""
    return {"slots": f"after {settled_until.isoformat()}"}
