"""Schedules for callers: one, its next slots, its ledger; pause, resume, delete. Any coordinator answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from toban_coordinator.app.large_payload import with_large_checks
from toban_coordinator.app.manifests import ManifestText, parse_json
from toban_coordinator.app.named_objects import changed, not_found
from toban_coordinator.app.paging import FIRST_PAGE, Page, PageRequest
from toban_coordinator.app.schedules.edit_due_slots import rule_or_none
from toban_coordinator.app.schedules.edit_schedule import ScheduleEdit, Settled, slots_after, state_of
from toban_coordinator.app.schedules.next_slots import (
    check_after,
    checked_count,
    note_of,
    stored_spec,
    with_next_after_pause,
)
from toban_coordinator.app.schedules.slot_counting import Counts, with_counts
from toban_coordinator.decide.schedules.pauses import LEADER, EndedPause, check_until
from toban_coordinator.store.cluster import audit, read_models
from toban_coordinator.store.schedules import fire_ledger, schedules_edit
from toban_coordinator.store.schedules.schedules_edit import StoredSchedule
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.schedule import ScheduleSpec
from toban_manifests.read import Document, read_manifests
from toban_schedule import AnnotatedSlot, Rule, annotated_slots, describe
from toban_schedule import problems as rule_problems
from toban_schedule.dst_preview import next_dst_change
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, autocommit, fenced_tx, tx

_ABOVE_ALL = (datetime(9999, 12, 31, tzinfo=UTC), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextSlots:
    """Slots to come, with the rule as a sentence. `note` says why they do not become runs; "" when they do. `clock_change` is that of Applied."""

    slots: Sequence[AnnotatedSlot]
    rule: str
    timezone: str
    note: str
    clock_change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedules:
    """What callers do with schedules."""

    pool: Pool

    async def next_slots(
        self, subject: str | ManifestText, *, count: int = 0, after: datetime | None = None
    ) -> NextSlots:
        """The next slots of a stored schedule (its name) or of a manifest, after `after` (None = now).

        Raises SCHEDULE_NOT_FOUND for a name, MANIFEST_INVALID or SCHEDULE_INVALID for a manifest, INVALID_ARGUMENT.
        """
        count = checked_count(count)
        check_after(after)
        row = None
        if isinstance(subject, str):
            row = await self.get(subject)
            spec = stored_spec(row)
        else:
            spec = _read(subject)
        async with autocommit(self.pool) as t:
            begin = after or await schedules_edit.moment(t)
        try:
            rule = Rule.of(spec.rule)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise TobanError(ErrorCode.SCHEDULE_INVALID, f"schedule {spec.name!r}: {error}") from None
        slots = await asyncio.to_thread(annotated_slots, rule, begin, count)
        note = note_of(
            status=row["status"] if row else "active",
            reason=row["status_reason"] if row else "",
            actor=row["status_actor"] if row else "",
            until=row["paused_until"] if row else None,
            spec=spec,
            job_enabled=not row["job_disabled"] if row else True,
            job_disabled_why=row["job_disabled_why"] if row else "",
            ended=not slots,
            after=after,
        )
        return NextSlots(
            slots=slots,
            rule=describe(spec.rule),
            timezone=spec.rule.timezone,
            note=note,
            clock_change=await asyncio.to_thread(next_dst_change, rule, begin) if spec.enabled else "",
        )

    async def list_fires(self, name: str, page: PageRequest = FIRST_PAGE) -> Page:
        """The ledger of a name, also of deleted schedules, latest slots first. Raises SCHEDULE_NOT_FOUND."""
        limit = page.rows
        below = _below(page.cursor)
        async with autocommit(self.pool) as t:
            found = await fire_ledger.page(t, name, below=below, limit=limit + 1)
            if not found and not await fire_ledger.known(t, name):
                raise await not_found(t, "schedule", name)
        more = (
            f"{found[limit - 1]['first_slot'].isoformat()},{found[limit - 1]['schedule_id']}"
            if len(found) > limit
            else ""
        )
        return Page(found[:limit], more)

    async def pause(self, name: str, *, reason: str, actor: str, until: datetime | None = None) -> Row:
        """No runs from now on, until it is resumed; the leader does that at `until`.

        Raises SCHEDULE_NOT_FOUND, RESOURCE_INVALID_STATE when it is paused until then already, INVALID_ARGUMENT for a time that is none.
        """
        reason = audit.clean_reason(reason)

        async def write(t: Tx, old: StoredSchedule, edit: ScheduleEdit) -> dict[str, Any]:
            check_until(until, edit.now)
            if old.status == "paused" and old.paused_until == until:
                by = f" by {old.status_actor}" if old.status_actor else ""
                why = f" ({old.status_reason})" if old.status_reason else ""
                raise TobanError(
                    ErrorCode.RESOURCE_INVALID_STATE,
                    f"schedule {old.name!r} is paused already{by}{why}; resume it first",
                )
            settled = (await edit.settle([old]))[old.id]
            # The leader, which wakes itself at the end.
            await t.notify("pauses")
            return await _set_status(t, old, settled, "paused", actor=actor, reason=reason, until=until)

        await self._edit(name, "schedule.pause", "paused", write, actor=actor, reason=reason)
        return await self.get(name)

    async def resume(self, name: str, *, reason: str = "", actor: str) -> Row:
        """Runs again, from the next slot on. Raises SCHEDULE_NOT_FOUND, RESOURCE_INVALID_STATE when it is active."""
        reason = audit.clean_reason(reason)

        async def write(t: Tx, old: StoredSchedule, edit: ScheduleEdit) -> dict[str, Any]:
            if old.status == "active":
                hint = "" if old.enabled else "; it is disabled: apply it with `enabled: true`"
                raise TobanError(
                    ErrorCode.RESOURCE_INVALID_STATE, f"schedule {old.name!r} is neither paused nor failed{hint}"
                )
            return await _set_status(t, old, (await edit.settle([old]))[old.id], "active", actor=actor)

        await self._edit(name, "schedule.resume", "resumed", write, actor=actor, reason=reason)
        return await self.get(name)

    async def end_pause(self, name: str, ended: EndedPause) -> None:
        """Runs again, from the first slot at its end on. Raises SCHEDULE_NOT_FOUND, CONFLICT when the pause has no such end any more."""

        async def write(t: Tx, old: StoredSchedule, edit: ScheduleEdit) -> dict[str, Any]:
            if old.paused_until != ended.until:
                raise changed("schedule", old.name)
            return await _set_status(t, old, (await edit.settle([old]))[old.id], "active", actor=LEADER)

        await self._edit(name, "schedule.resume", "resumed", write, actor=LEADER, reason=ended.reason, ended=ended)

    async def delete(self, name: str, *, reason: str, actor: str) -> int:
        """Deletes a schedule; runs of slots that have come go on, its ledger stays. How many runs of later slots were withdrawn.

        Raises SCHEDULE_NOT_FOUND.
        """
        reason, withdrawn = audit.clean_reason(reason), 0

        async def write(t: Tx, old: StoredSchedule, edit: ScheduleEdit) -> dict[str, Any]:
            nonlocal withdrawn
            settled = (await edit.settle([old]))[old.id]
            withdrawn = settled.withdrawn
            if not await schedules_edit.delete(t, old, settled_until=settled.after, reason=reason, actor=actor):
                raise changed("schedule", old.name)
            return slots_after(settled.after)

        await self._edit(name, "schedule.delete", "deleted", write, actor=actor, reason=reason)
        return withdrawn

    async def _edit(
        self,
        name: str,
        action: str,
        why: str,
        write: Callable[[Tx, StoredSchedule, ScheduleEdit], Any],
        *,
        actor: str,
        reason: str,
        ended: EndedPause | None = None,
    ) -> None:
        """One edit in one transaction: lock, `write`, note; then the leader's loops look again. With `ended` it is a write as leader."""

        async def once(counts: Counts) -> ScheduleEdit:
            async with fenced_tx(self.pool, ended.term) if ended else tx(self.pool) as t:
                locked = await schedules_edit.lock(t, [name])
                if not locked:
                    raise await not_found(t, "schedule", name)
                old = locked[0]
                now = ended.last_slot if ended else await schedules_edit.moment(t)
                edit = ScheduleEdit(t=t, now=now, actor=actor, why=why, counts=counts)
                done = await write(t, old, edit)
                before = state_of(old, edit.now)
                if action != "schedule.delete":
                    # The definition stays as it is, and may be long.
                    before.pop("spec")
                    done = {**before, **done}
                await audit.note(t, actor, action, f"schedule {name}", reason, before=before, after=done)
                await t.notify("fire")
                await t.notify("assign")
            return edit

        (await with_large_checks(lambda: with_counts(once))).count()

    async def get(self, name: str) -> Row:
        """One schedule. Raises SCHEDULE_NOT_FOUND."""
        async with autocommit(self.pool) as t:
            found = await read_models.schedules_page(t, names=[name], limit=1)
            if not found:
                raise await not_found(t, "schedule", name)
        return (await with_next_after_pause(found))[0]


async def _set_status(
    t: Tx,
    old: StoredSchedule,
    settled: Settled,
    status: str,
    *,
    actor: str,
    reason: str = "",
    until: datetime | None = None,
) -> dict[str, Any]:
    # A rule that cannot be read any more has no next slot.
    rule = rule_or_none(old)
    following = settled.next_slot(rule) if old.enabled and rule is not None else None
    version = await schedules_edit.set_status(
        t, old, status, reason=reason, until=until, next_run_at=following, actor=actor
    )
    if version is None:
        raise changed("schedule", old.name)
    end = until.isoformat() if until else None
    state = {"version": version, "status": status, "status_reason": reason, "paused_until": end}
    return {**state, **slots_after(settled.after)}


def _read(manifest: ManifestText) -> ScheduleSpec:
    source = manifest.source or "the manifest"
    [read] = read_manifests([Document(source, parse_json(manifest.json, source))], check_rule=rule_problems)
    if not isinstance(read.spec, ScheduleSpec):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"{source}: {read.kind} {read.name!r} has no slots; give a Schedule"
        )
    return read.spec


def _below(cursor: str) -> tuple[datetime, int]:
    if not cursor:
        return _ABOVE_ALL
    slot, _, schedule = cursor.partition(",")
    try:
        below = datetime.fromisoformat(slot)
        if below.tzinfo is None:
            raise ValueError(slot)
        return below, int(schedule)
    except ValueError:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"page.cursor {cursor!r} is not from an earlier page") from None
