"""JobControl.DisableJob and EnableJob: a person stops a job from starting anything, for good or until a time, whatever is applied meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from toban_coordinator.app.large_payload import with_large_checks
from toban_coordinator.app.named_objects import changed, not_found
from toban_coordinator.app.schedules.apply_schedule import ScheduleWriter
from toban_coordinator.app.schedules.edit_schedule import ScheduleEdit
from toban_coordinator.app.schedules.slot_counting import Counts, with_counts
from toban_coordinator.decide.schedules.pauses import LEADER, EndedPause, check_until
from toban_coordinator.store.cluster import audit, read_models
from toban_coordinator.store.definitions import jobs
from toban_coordinator.store.definitions.jobs import Definition
from toban_domain.errors import ErrorCode, TobanError
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, autocommit, fenced_tx, tx

# Of a reason, in the ledger of the job's schedules.
MAX_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class DisableJob:
    """A person's change is no leader's write: conditional on the locked definition. Runs that exist already are left alone."""

    pool: Pool

    async def disable(self, name: str, *, reason: str, actor: str, until: datetime | None = None) -> Row:
        """No new runs by schedule, event or demand, until it is enabled; the leader does that at `until`. Answers the job.

        Raises JOB_NOT_FOUND, RESOURCE_INVALID_STATE when a person disabled it until then already, INVALID_ARGUMENT for a time that is none.
        """
        reason = audit.clean_reason(reason)
        why = f": {reason[:MAX_SHOWN]}" if reason else ""

        async def write(t: Tx, old: Definition, counts: Counts) -> ScheduleWriter:
            check_until(until, await jobs.server_now(t))
            if old.disabled is not None and old.disabled.until == until:
                raise TobanError(
                    ErrorCode.RESOURCE_INVALID_STATE,
                    f"job {name!r} is disabled already{old.disabled.why}; enable it first",
                )
            switched = {old.id: "disabled"} if old.enabled else {}
            writer = ScheduleWriter(t=t, actor=actor, counts=counts, with_next_slots=False, because=f" by {actor}{why}")
            await writer.begin((), {}, switched, _expect_nothing)
            if not await jobs.disable(t, old, reason=reason, actor=actor, until=until):
                raise changed("job", name)
            # The leader, which wakes itself at the end.
            await t.notify("pauses")
            after = _state(False, actor, reason, until) | {"schedules": writer.switched()[old.id]}
            await _note(t, "job.disable", name, old, after, reason, actor)
            return writer

        return await self._edit(name, write)

    async def enable(self, name: str, *, reason: str, actor: str, seen: datetime | None = None) -> Row:
        """Starts runs again, if its manifest has `enabled: true`; answers the job.

        Raises JOB_NOT_FOUND, RESOURCE_INVALID_STATE when no person disabled it, CONFLICT when that was not at the time `seen`.
        """
        reason = audit.clean_reason(reason)

        async def write(t: Tx, old: Definition, counts: Counts) -> ScheduleWriter:
            if old.disabled is None:
                raise _not_disabled(name, old)
            if seen is not None and seen != old.disabled.at:
                raise TobanError(
                    ErrorCode.CONFLICT,
                    f"job {name!r} was disabled again meanwhile{old.disabled.why}; read it again, then decide",
                )
            writer = ScheduleWriter(t=t, actor=actor, counts=counts, with_next_slots=False, because=f" by {actor}")
            await _enable(writer, old, name, reason)
            return writer

        return await self._edit(name, write)

    async def end_pause(self, name: str, ended: EndedPause) -> None:
        """Starts runs again, as `enable`, from the end on. Raises JOB_NOT_FOUND, CONFLICT when it is not disabled until then any more."""

        async def write(t: Tx, old: Definition, counts: Counts) -> ScheduleWriter:
            if old.disabled is None or old.disabled.until != ended.until:
                raise changed("job", name)
            writer = ScheduleWriter(
                t=t, actor=LEADER, counts=counts, with_next_slots=False, because=f" by {LEADER}", now=ended.last_slot
            )
            await _enable(writer, old, name, ended.reason)
            return writer

        await self._edit(name, write, ended)

    async def _edit(
        self,
        name: str,
        write: Callable[[Tx, Definition, Counts], Awaitable[ScheduleWriter]],
        ended: EndedPause | None = None,
    ) -> Row:
        """One transaction: the job and its schedules; then the leader's loops look again. With `ended` it is a write as leader."""

        async def once(counts: Counts) -> list[ScheduleEdit]:
            async with fenced_tx(self.pool, ended.term) if ended else tx(self.pool) as t:
                old = (await jobs.lock_current(t, [name])).get(name)
                if old is None:
                    raise await not_found(t, "job", name)
                writer = await write(t, old, counts)
                await writer.write((), {})
                await t.notify("fire")
                await t.notify("assign")
            return writer.edits()

        for edit in await with_large_checks(lambda: with_counts(once)):
            edit.count()
        async with autocommit(self.pool) as t:
            found = await read_models.jobs_named(t, [name])
            if not found:
                raise await not_found(t, "job", name)
        return found[0]


def _expect_nothing(name: str, version: int) -> None:
    """The caller named no schedule, so it expects no version of one."""


async def _enable(writer: ScheduleWriter, old: Definition, name: str, reason: str) -> None:
    # One that cannot be read stays off: what starts it says why.
    enabled = old.spec is not None and old.spec.enabled
    await writer.begin((), {}, {old.id: "enabled"} if enabled else {}, _expect_nothing)
    if not await jobs.enable(writer.t, old, enabled=enabled):
        raise changed("job", name)
    after = _state(enabled) | {"schedules": writer.switched()[old.id]}
    await _note(writer.t, "job.enable", name, old, after, reason, writer.actor)


def _state(enabled: bool, by: str = "", reason: str = "", until: datetime | None = None) -> dict[str, object]:
    end = until.isoformat() if until else None
    return {"enabled": enabled, "disabled_by": by, "disabled_reason": reason, "disabled_until": end}


def _not_disabled(name: str, old: Definition) -> TobanError:
    remedy = "it starts runs" if old.enabled else "its manifest has `enabled: false`; apply it with `enabled: true`"
    return TobanError(ErrorCode.RESOURCE_INVALID_STATE, f"job {name!r} was not disabled by a person: {remedy}")


async def _note(
    t: Tx, action: str, name: str, old: Definition, after: dict[str, object], reason: str, actor: str
) -> None:
    was = old.disabled
    state = _state(old.enabled, was.by, was.reason, was.until) if was is not None else _state(old.enabled)
    # How many schedules follow the job.
    before = {"version": old.version, **state, "schedules": after["schedules"]}
    after = {"version": old.version, **after}
    await audit.note(t, actor, action, f"job {name}", reason, before=before, after=after)
