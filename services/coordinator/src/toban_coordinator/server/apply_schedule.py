"""Applies schedules, inside the transaction of one Apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toban_coordinator.loops.payloads import Payloads
from toban_coordinator.server.edit_schedule import ScheduleEdit, changed, state_of
from toban_coordinator.server.next_slots import NEXT_SHOWN, note_of, slots_to_pb
from toban_domain.errors import TobanError
from toban_domain.job import JobSpec
from toban_domain.schedule import ScheduleSpec
from toban_proto.v1 import coordinator_pb2 as pb
from toban_schedule import Rule, noted_slots
from toban_store.scheduler import audit, schedules_edit
from toban_store.scheduler.audit import AdminAction
from toban_store.scheduler.jobs import Head
from toban_store.scheduler.schedules_edit import StoredSchedule
from toban_store.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleWriter:
    """The schedules of one Apply. `ended`: up to where deleted schedules of these names were settled; `tell_next`: answer the next slots."""

    t: Tx
    edit: ScheduleEdit
    actor: str
    ended: Mapping[str, datetime]
    tell_next: bool

    async def apply(
        self, source: str, spec: ScheduleSpec, old: StoredSchedule | None, head: Head, job: JobSpec, digest: str
    ) -> pb.Applied:
        """created, updated or unchanged; `head` and `job` are the definition that it will start."""
        _check_payload(source, spec, job)
        if old is not None and old.spec_hash == digest and old.due.definition_id == head.id:
            return pb.Applied(kind="Schedule", name=spec.name, action="unchanged", version=old.due.version)
        rule = Rule.of(spec.rule)
        if old is None:
            after = max(self.edit.now, self.ended.get(spec.name, self.edit.now))
            version = await schedules_edit.create(
                self.t, spec, digest, definition_id=head.id, next_run_at=_next(spec, rule, after), actor=self.actor
            )
        else:
            settled = await self.edit.settle(old)
            after = settled.after
            version = await schedules_edit.update(
                self.t, old, spec, digest, definition_id=head.id, next_run_at=_next(spec, rule, after), actor=self.actor
            )
        if version is None:
            raise changed(spec.name)
        await self._note(spec, old, version, after)
        applied = pb.Applied(kind="Schedule", name=spec.name, action="updated" if old else "created", version=version)
        if self.tell_next:
            slots = noted_slots(rule, after, NEXT_SHOWN)
            applied.next_slots.extend(slots_to_pb(slots))
            applied.note = _note_of(spec, old, head, ended=not slots)
        return applied

    async def _note(self, spec: ScheduleSpec, old: StoredSchedule | None, version: int, after: datetime) -> None:
        before: dict[str, Any] | None = None
        if old is not None:
            before = {**state_of(old), "until": self.edit.now.isoformat()}
        action = AdminAction(
            actor=self.actor,
            action="schedule.update" if old else "schedule.create",
            target=f"schedule {spec.name}",
            before=before,
            after={"version": version, "spec": spec.to_json(), "after": after.isoformat()},
        )
        await audit.note(self.t, action)


def _note_of(spec: ScheduleSpec, old: StoredSchedule | None, head: Head, *, ended: bool) -> str:
    """Why the slots do not become runs; an edit makes a failed schedule active."""
    paused = old is not None and old.status == "paused"
    return note_of(
        status="paused" if paused else "active",
        reason=old.status_reason if old is not None and paused else "",
        actor=old.status_actor if old is not None and paused else "",
        spec=spec,
        job_enabled=head.enabled,
        ended=ended,
    )


def _next(spec: ScheduleSpec, rule: Rule, after: datetime) -> datetime | None:
    return rule.next_slot(after) if spec.enabled else None


def _check_payload(source: str, spec: ScheduleSpec, job: JobSpec) -> None:
    try:
        Payloads().make((0, 0), job, spec.payload)
    except TobanError as error:
        raise TobanError(
            error.code, f"{source}: spec.payload: {error.message} {spec.job!r}", detail=error.detail
        ) from None
