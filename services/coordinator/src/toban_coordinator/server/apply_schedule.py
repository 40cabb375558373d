"""Applies one schedule: settles what is due by the old rule, withdraws early runs, then takes the new rule (docs/fencing.md 3.12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from toban_coordinator.decide import fire as decide
from toban_coordinator.loops.definitions import Definitions
from toban_coordinator.loops.payloads import Payloads
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.firing import DueSchedule, FirePlan
from toban_domain.job import JobSpec
from toban_domain.moves import Finish, Release
from toban_domain.run import RunState
from toban_domain.schedule import ScheduleSpec
from toban_proto.v1 import coordinator_pb2 as pb
from toban_schedule import Rule
from toban_store.scheduler import ledger, runs_finish, schedules
from toban_store.scheduler.jobs import Head
from toban_store.scheduler.schedules import StoredSchedule
from toban_store.tx import Tx

# Plans that one edit settles: more due slots than these can hold make the edit wait for the fire loop.
MAX_PLANS = 20
# A schedule in one of these states makes no runs: its due slots are skipped with that reason.
_SKIPPED_STATUS: Mapping[str, str] = {"paused": "paused", "failed": "submit_failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleWriter:
    """The schedules of one Apply, inside its transaction."""

    t: Tx
    now: datetime
    actor: str

    async def apply(
        self, source: str, spec: ScheduleSpec, old: StoredSchedule | None, head: Head, job: JobSpec, digest: str
    ) -> pb.Applied:
        """created, updated or unchanged; `head` and `job` are the definition that it will start."""
        _check_payload(source, spec, job)
        if old is not None and old.spec_hash == digest and old.due.definition_id == head.id:
            return pb.Applied(kind="Schedule", name=spec.name, action="unchanged", version=old.due.version)
        following = Rule.of(spec.rule).next_slot(self.now) if spec.enabled else None
        if old is None:
            version = await schedules.create(
                self.t, spec, digest, definition_id=head.id, next_run_at=following, actor=self.actor
            )
        else:
            await self._settle(old)
            await self._withdraw(old)
            version = await schedules.update(
                self.t, old, spec, digest, definition_id=head.id, next_run_at=following, actor=self.actor
            )
        if version is None:
            raise TobanError(
                ErrorCode.CONFLICT, f"schedule {spec.name!r} was changed by somebody else at the same time; apply again"
            )
        return pb.Applied(kind="Schedule", name=spec.name, action="updated" if old else "created", version=version)

    async def _settle(self, old: StoredSchedule) -> None:
        """Every slot that is due by now gets its run or its ledger row, by the old rule and the definition of before."""
        due = old.due
        for _ in range(MAX_PLANS):
            if due.next_run_at is None or due.next_run_at > self.now:
                return
            plan = await self._plan(old, due)
            await schedules.fire(self.t, [plan])
            due = replace(due, next_run_at=plan.next_run_at)
        raise TobanError(
            ErrorCode.UNAVAILABLE,
            f"schedule {due.spec.name!r} still has many due slots to settle; apply again in a moment",
        )

    async def _plan(self, old: StoredSchedule, due: DueSchedule) -> FirePlan:
        key = (due.definition_id, due.definition_version)
        job = await Definitions().get(self.t, key)
        rule = Rule.of(due.spec.rule)
        try:
            template = decide.template(job, Payloads().make(key, job, due.spec.payload))
        except TobanError as error:
            plan = decide.plan(due, rule, decide.template(job, "{}"), now=self.now, until=self.now)
            return _skip_all(plan, "submit_failed", error.message)
        plan = decide.plan(due, rule, template, now=self.now, until=self.now)
        outcome = _SKIPPED_STATUS.get(old.status)
        return plan if outcome is None else _skip_all(plan, outcome, f"the schedule was {old.status}")

    async def _withdraw(self, old: StoredSchedule) -> None:
        """Runs of future slots that were not sent go away; their slots are free for the new rule."""
        early = await schedules.unstarted_ahead(self.t, old.id, self.now)
        await runs_finish.release(
            self.t,
            [
                Release(
                    run_id=run.id,
                    source=run.state,
                    token=run.token,
                    attempt=run.attempt,
                    lost_count=run.lost_count,
                    event="released",
                    message="its schedule was edited",
                )
                for run in early
                if run.state is RunState.ASSIGNED
            ],
        )
        await runs_finish.finish(
            self.t,
            [
                Finish(
                    run_id=run.id,
                    source=RunState.PENDING,
                    token=None,
                    target=RunState.SKIPPED,
                    reason="withdrawn",
                    message="its schedule was edited before its time",
                    actor=self.actor,
                )
                for run in early
            ],
        )
        await ledger.withdraw(self.t, old.id, [run.id for run in early], "the schedule was edited before this time")


def _skip_all(plan: FirePlan, outcome: str, message: str) -> FirePlan:
    return replace(plan, fires=(), skips=(*plan.skips, *decide.stretch(plan.fires, outcome, message)))


def _check_payload(source: str, spec: ScheduleSpec, job: JobSpec) -> None:
    try:
        Payloads().make((0, 0), job, spec.payload)
    except TobanError as error:
        raise TobanError(
            error.code, f"{source}: spec.payload: {error.message} {spec.job!r}", detail=error.detail
        ) from None
