"""JobControl.DeleteJob: a job goes with what uses it, or not at all; its runs stay readable and its name is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban_coordinator.app.large_payload import with_large_checks
from toban_coordinator.app.named_objects import changed, listed, not_found
from toban_coordinator.app.runs.cancel import CancelRun
from toban_coordinator.app.schedules.edit_schedule import ScheduleEdit, state_of
from toban_coordinator.app.schedules.slot_counting import Counts, with_counts
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.cluster.audit import AdminAction
from toban_coordinator.store.definitions import jobs, triggers
from toban_coordinator.store.definitions.jobs import Definition, Users
from toban_coordinator.store.schedules import schedules_edit
from toban_coordinator.store.secrets import secrets
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.redacted import masked_definition
from toban_store.pool import Pool
from toban_store.tx import Tx, tx

# Of each kind, in one call: more than a job has, few enough for one transaction.
MOST = 500
_WHY = "its job was deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRequest:
    """Which job, and what may go with it. Without `with_schedules`, `with_triggers` and `cancel_runs` a job that has such is refused."""

    name: str
    reason: str = ""
    with_schedules: bool = False
    with_triggers: bool = False
    cancel_runs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """What went with a job."""

    schedules: Sequence[str]
    triggers: Sequence[str]
    canceled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteJob:
    """Not a leader's write: conditional on the locked definition."""

    pool: Pool
    cancel: CancelRun

    async def delete(self, wanted: DeleteRequest, actor: str) -> Deleted:
        """Raises JOB_NOT_FOUND, RESOURCE_INVALID_STATE naming what uses the job, CANCEL_UNSUPPORTED for a run that only a kill ends."""
        reason = audit.clean_reason(wanted.reason)
        async with tx(self.pool) as t:
            _, uses = await _check(t, wanted)
        canceled = 0
        for run in uses.runs:
            try:
                canceled += await self.cancel.cancel(run, reason=reason or _WHY, mode="", actor=actor)
            except TobanError as error:
                # It has ended meanwhile.
                if error.code is not ErrorCode.RESOURCE_INVALID_STATE:
                    raise
        done: list[Deleted] = []

        async def once(counts: Counts) -> ScheduleEdit:
            async with tx(self.pool) as t:
                edit, deleted = await self._delete(t, wanted, counts, reason, actor, canceled)
                done[:] = [deleted]
            return edit

        (await with_large_checks(lambda: with_counts(once))).count()
        return done[0]

    async def _delete(
        self, t: Tx, wanted: DeleteRequest, counts: Counts, reason: str, actor: str, canceled: int
    ) -> tuple[ScheduleEdit, Deleted]:
        old, uses = await _check(t, wanted)
        edit = ScheduleEdit(t=t, now=await schedules_edit.moment(t), actor=actor, why="deleted", counts=counts)
        actions = await _delete_schedules(t, old, edit, reason)
        for name in uses.triggers:
            actions.append(_action(actor, "trigger.delete", f"trigger {name}", await triggers.delete(t, name), reason))
        # Settling the schedules may have made runs of slots that are due.
        for run in (await jobs.users(t, old.id, wanted.name, most=MOST)).runs:
            if not wanted.cancel_runs:
                raise _in_use(wanted.name, Users(runs=[run]))
            canceled += await self.cancel.cancel_in(t, run, reason=reason or _WHY, mode="", actor=actor)
        if not await jobs.delete(t, old, actor=actor):
            raise changed("job", wanted.name)
        await secrets.forget_job(t, wanted.name, old.id)
        before = {
            "version": old.version,
            **({"spec": masked_definition(old.spec.to_json())} if old.spec else {"broken": old.broken}),
        }
        after = {"schedules": list(uses.schedules), "triggers": list(uses.triggers), "canceled_runs": canceled}
        job = AdminAction(
            actor=actor, action="job.delete", target=f"job {wanted.name}", before=before, after=after, reason=reason
        )
        await audit.note_all(t, [*actions, job])
        await t.notify("fire")
        await t.notify("assign")
        return edit, Deleted(schedules=uses.schedules, triggers=uses.triggers, canceled=canceled)


async def _check(t: Tx, wanted: DeleteRequest) -> tuple[Definition, Users]:
    """The job, locked, and what uses it. Raises when that may not go with it."""
    old = (await jobs.lock_current(t, [wanted.name])).get(wanted.name)
    if old is None:
        raise await not_found(t, "job", wanted.name)
    uses = await jobs.users(t, old.id, wanted.name, most=MOST)
    refused = Users(
        schedules=() if wanted.with_schedules else uses.schedules,
        triggers=() if wanted.with_triggers else uses.triggers,
        runs=() if wanted.cancel_runs else uses.runs,
    )
    if refused != Users():
        raise _in_use(wanted.name, refused)
    for kind, found in (("schedules", uses.schedules), ("triggers", uses.triggers), ("live runs", uses.runs)):
        if len(found) >= MOST:
            raise TobanError(
                ErrorCode.RESOURCE_INVALID_STATE,
                f"job {wanted.name!r} has {MOST} {kind} or more; remove or cancel some first",
            )
    return old, uses


async def _delete_schedules(t: Tx, old: Definition, edit: ScheduleEdit, reason: str) -> list[AdminAction]:
    locked = await schedules_edit.lock(t, [], definition_ids=[old.id])
    settled = await edit.settle(locked)
    actions = []
    for one in locked:
        until = settled[one.id].after
        if not await schedules_edit.delete(t, one, settled_until=until, reason=reason or _WHY, actor=edit.actor):
            raise changed("schedule", one.name)
        before = state_of(one, edit.now)
        actions.append(_action(edit.actor, "schedule.delete", f"schedule {one.name}", before, reason))
    return actions


def _action(actor: str, action: str, target: str, before: object, reason: str) -> AdminAction:
    found = before if isinstance(before, dict) else None
    return AdminAction(actor=actor, action=action, target=target, before=found, reason=reason or _WHY)


def _in_use(name: str, uses: Users) -> TobanError:
    """What keeps the job, and the option that lets it go as well."""
    parts = []
    for found, one, many, option in (
        (uses.schedules, "schedule", "schedules", "--with-schedules"),
        (uses.triggers, "trigger", "triggers", "--with-triggers"),
        ([str(run) for run in uses.runs], "live run", "live runs", "--cancel-runs"),
    ):
        if found:
            parts.append(f"{one if len(found) == 1 else many} {listed(found)} ({option})")
    return TobanError(
        ErrorCode.RESOURCE_INVALID_STATE,
        f"job {name!r} is in use by {'; '.join(parts)}; remove these first, or delete them with the job by the named options",
        detail={"schedules": list(uses.schedules), "triggers": list(uses.triggers), "runs": list(uses.runs)},
    )
