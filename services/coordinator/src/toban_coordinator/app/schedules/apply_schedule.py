"""Applies schedules, inside the transaction of one Apply: all of them together, a few statements for hundreds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from toban_coordinator.app.manifests import Applied
from toban_coordinator.app.named_objects import changed
from toban_coordinator.app.schedules.edit_due_slots import rule_or_none
from toban_coordinator.app.schedules.edit_schedule import ScheduleEdit, Settled, slots_after, state_of
from toban_coordinator.app.schedules.next_slots import NEXT_SHOWN, note_of
from toban_coordinator.app.schedules.slot_counting import Counts
from toban_coordinator.app.write_batches import WriteBatches
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.cluster.audit import AdminAction
from toban_coordinator.store.definitions.jobs import Head
from toban_coordinator.store.schedules import schedules_edit
from toban_coordinator.store.schedules.schedules_edit import StoredSchedule, Written
from toban_domain.redacted import masked_payload_of
from toban_domain.schedule import ScheduleSpec
from toban_schedule import Rule, annotated_slots, next_dst_change
from toban_store.tx import Tx

_ACTIVE: Mapping[str, Any] = {"status": "active", "status_reason": "", "paused_until": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSchedule:
    """A schedule as a manifest wants it."""

    source: str
    spec: ScheduleSpec
    digest: str
    rule: Rule


@dataclass(frozen=True, slots=True)
class _Ready:
    """A schedule that is about to be written."""

    wanted: WantedSchedule
    written: Written
    after: datetime


@dataclass(kw_only=True)
class ScheduleWriter:
    """The schedules of one Apply: `begin` before its jobs are written, `write` after that. `with_next_slots`: the answer has them.

    `because`: by whom and why its jobs are enabled or disabled, when a person does it.
    `now`: the moment that the edit counts from, when that is not the one at which it holds its locks.
    `hidden`: the names whose values the audit does not show, by job.
    """

    t: Tx
    actor: str
    counts: Counts
    with_next_slots: bool
    reason: str = ""
    hidden: Mapping[str, Collection[str]] = field(default_factory=dict)
    because: str = ""
    now: datetime | None = None
    _stored: Mapping[str, StoredSchedule] = field(default_factory=dict)
    _settled: Mapping[int, Settled] = field(default_factory=dict)
    _ended: Mapping[str, datetime] = field(default_factory=dict)
    _switched: Sequence[StoredSchedule] = ()
    _edit: ScheduleEdit | None = None
    _done: dict[str, Applied] = field(default_factory=dict)

    async def begin(
        self,
        wanted: Sequence[WantedSchedule],
        jobs: Mapping[str, int],
        switched: Mapping[int, str],
        expect: Callable[[str, int], None],
    ) -> None:
        """Locks, and settles what is due by the schedules and jobs as they are.

        `jobs`: ids of the jobs that exist, by name; `switched`: ids of those that will be enabled or disabled, with that word.
        `expect` hears of each wanted schedule and its version, 0 for none.
        """
        names = [one.spec.name for one in wanted]
        locked = await schedules_edit.lock(self.t, names, definition_ids=list(switched))
        by_name = {one.spec.name: one for one in wanted}
        self._stored = {old.name: old for old in locked if old.name in by_name}
        for name in names:
            expect(name, self._stored[name].due.version if name in self._stored else 0)
        self._switched = [old for old in locked if _follows(old, switched, by_name.get(old.name), jobs)]
        changing = [old for name, old in self._stored.items() if not _same(by_name[name], old, jobs)]
        why_of = {old.id: f"{switched[old.due.definition_id]} with its job{self.because}" for old in self._switched}
        now = self.now or await schedules_edit.moment(self.t)
        self._edit = ScheduleEdit(t=self.t, now=now, actor=self.actor, why="edited", counts=self.counts, why_of=why_of)
        self._settled = await self._edit.settle(sorted([*self._switched, *changing], key=lambda old: old.id))
        self._ended = await schedules_edit.settled_until(self.t, [name for name in names if name not in self._stored])

    async def write(self, wanted: Sequence[WantedSchedule], heads: Mapping[str, Head]) -> dict[str, Applied]:
        """created, updated or unchanged, by name; `heads` are the definitions that they will start."""
        assert self._edit is not None
        await self._renew_switched()
        new = WriteBatches(self._writer(schedules_edit.create, heads))
        changing = WriteBatches(self._writer(schedules_edit.update, heads))
        for one in wanted:
            old_one, head = self._stored.get(one.spec.name), heads[one.spec.job]
            if old_one is not None and _same(one, old_one, {one.spec.job: head.id}):
                self._unchanged(old_one)
                continue
            await (changing if old_one else new).add(self._ready(one, old_one, head))
        await changing.close()
        await new.close()
        return self._done

    def switched(self) -> Counter[int]:
        """How many schedules follow each job that is enabled or disabled, for the row of the job in the audit: they have none of their own."""
        return Counter(old.due.definition_id for old in self._switched)

    def edits(self) -> list[ScheduleEdit]:
        """The edit of schedules that were there already, to be counted after the commit."""
        return [] if self._edit is None else [self._edit]

    def _ready(self, one: WantedSchedule, old: StoredSchedule | None, head: Head) -> _Ready:
        assert self._edit is not None
        now = self._edit.now
        after = self._settled[old.id].after if old else max(now, self._ended.get(one.spec.name, now))
        following = one.rule.next_slot(after) if one.spec.enabled else None
        written = Written(old=old, spec=one.spec, spec_hash=one.digest, definition_id=head.id, next_run_at=following)
        return _Ready(one, written, after)

    def _writer(
        self, write: Callable[..., Awaitable[dict[str, int]]], heads: Mapping[str, Head]
    ) -> Callable[[list[_Ready]], Awaitable[None]]:
        async def written(batch: list[_Ready]) -> None:
            versions = await write(self.t, [ready.written for ready in batch], actor=self.actor)
            for ready in batch:
                name = ready.wanted.spec.name
                if name not in versions:
                    raise changed("schedule", name)
                self._done[name] = self._applied(ready, versions[name], heads[ready.wanted.spec.job])
            await audit.note_all(self.t, [self._action(ready, versions[ready.wanted.spec.name]) for ready in batch])

        return written

    async def _renew_switched(self) -> None:
        renewing = WriteBatches(self._renew)
        for old in self._switched:
            rule = rule_or_none(old)
            # One that cannot be read stays due: the fire loop says why it fails.
            following = self._settled[old.id].next_slot(rule) if rule is not None else old.due.next_run_at
            await renewing.add((old, following))
        await renewing.close()

    async def _renew(self, batch: list[tuple[StoredSchedule, datetime | None]]) -> None:
        versions = await schedules_edit.renew(self.t, batch)
        for old, _ in batch:
            if old.name not in versions:
                raise changed("schedule", old.name)
            self._unchanged(old, versions[old.name])

    def _unchanged(self, old: StoredSchedule, version: int = 0) -> None:
        if old.name not in self._done:
            self._done[old.name] = Applied(
                kind="Schedule", name=old.name, action="unchanged", version=version or old.due.version
            )

    def _applied(self, ready: _Ready, version: int, head: Head) -> Applied:
        spec, old = ready.wanted.spec, ready.written.old
        applied = Applied(kind="Schedule", name=spec.name, action="updated" if old else "created", version=version)
        if not self.with_next_slots:
            return applied
        slots = annotated_slots(ready.wanted.rule, ready.after, NEXT_SHOWN)
        return replace(
            applied,
            next_slots=tuple(slots),
            clock_change=next_dst_change(ready.wanted.rule, ready.after) if spec.enabled else "",
            note=_note_of(spec, old, head, ended=not slots),
        )

    def _action(self, ready: _Ready, version: int) -> AdminAction:
        old, spec = ready.written.old, ready.wanted.spec
        hidden = self.hidden[spec.job]
        assert self._edit is not None
        before = state_of(old, self._edit.now, hidden) if old else None
        # An edit ends a failure, and no pause.
        stays = before if before is not None and before["status"] == "paused" else _ACTIVE
        after = {
            "version": version,
            **{key: stays[key] for key in _ACTIVE},
            "spec": masked_payload_of(spec.to_json(), hidden),
            **slots_after(ready.after),
        }
        return AdminAction(
            actor=self.actor,
            action="schedule.update" if old else "schedule.create",
            target=f"schedule {spec.name}",
            before=before,
            after=after,
            reason=self.reason,
        )


def _same(one: WantedSchedule, old: StoredSchedule, jobs: Mapping[str, int]) -> bool:
    """Whether the stored schedule is as it is wanted; one whose row has gone wrong since its Apply is not."""
    if old.spec_hash != one.digest or old.due.broken or jobs.get(one.spec.job) != old.due.definition_id:
        return False
    return old.due.spec.to_json() == one.spec.to_json()


def _follows(
    old: StoredSchedule, switched: Mapping[int, str], wanted: WantedSchedule | None, jobs: Mapping[str, int]
) -> bool:
    """Whether a schedule is settled because its job is enabled or disabled: it makes slots, and the Apply does not change it anyway."""
    if old.due.definition_id not in switched or not old.enabled or old.status != "active":
        return False
    return wanted is None or _same(wanted, old, jobs)


def _note_of(spec: ScheduleSpec, old: StoredSchedule | None, head: Head, *, ended: bool) -> str:
    """Why the slots do not become runs; an edit makes a failed schedule active."""
    paused = old is not None and old.status == "paused"
    return note_of(
        status="paused" if paused else "active",
        reason=old.status_reason if old is not None and paused else "",
        actor=old.status_actor if old is not None and paused else "",
        until=old.paused_until if old is not None else None,
        spec=spec,
        job_enabled=head.enabled,
        job_disabled_why=head.disabled_why,
        ended=ended,
    )
