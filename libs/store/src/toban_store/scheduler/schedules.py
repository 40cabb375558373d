"""Schedules: which are due, the fire that turns slots into runs, and edits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toban_domain.firing import DueSchedule, FirePlan
from toban_domain.payload import canonical_json
from toban_domain.run import RunState
from toban_domain.schedule import ScheduleSpec
from toban_store import queries
from toban_store.tx import FencedTx, Row, Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """A schedule as stored and locked; `due` is what a fire would look at."""

    due: DueSchedule
    spec_hash: str
    enabled: bool
    status: str

    @property
    def id(self) -> int:
        """The row's id."""
        return self.due.id


@dataclass(frozen=True, slots=True)
class Fired:
    """What a fire wrote: schedules advanced (the others were changed meanwhile) and runs made."""

    advanced: int
    made: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AheadOfSlot:
    """A run of a future slot that was not sent."""

    id: int
    state: RunState
    token: int | None
    attempt: int
    lost_count: int


async def due(t: Tx, now: datetime, until: datetime, *, limit: int) -> list[DueSchedule]:
    """Schedules with a slot up to `until`, earliest first."""
    rows = await t.fetch_all(_sql.due, {"now": now, "until": until, "limit": limit})
    return [_due(row) for row in rows]


async def next_slot(t: Tx) -> datetime | None:
    """The earliest slot that is not settled yet."""
    row = await t.fetch_one(_sql.next_slot)
    at: datetime | None = row["at"] if row else None
    return at


async def lock_named(t: Tx, names: Sequence[str]) -> dict[str, StoredSchedule]:
    """Those of `names` that exist, locked."""
    rows = await t.fetch_all(_sql.lock_named, {"names": list(names)})
    return {
        row["name"]: StoredSchedule(
            due=_due(row), spec_hash=row["spec_hash"], enabled=row["enabled"], status=row["status"]
        )
        for row in rows
    }


async def fire(t: Tx, plans: Sequence[FirePlan]) -> Fired:
    """Settles slots: runs, ledger and the advance of each schedule, all conditional on the schedule's version and next slot.

    The leader calls it in a fenced transaction; an edit calls it with the schedule locked.
    """
    row = await t.fetch_one(_sql.fire, {**_plan_parameters(plans), **_slot_parameters(plans)})
    return Fired(row["advanced"], row["made"]) if row else Fired(0, 0)


def _plan_parameters(plans: Sequence[FirePlan]) -> dict[str, list[Any]]:
    return {
        "ids": [p.schedule.id for p in plans],
        "row_versions": [p.schedule.version for p in plans],
        "expected": [p.schedule.next_run_at for p in plans],
        "nexts": [p.next_run_at for p in plans],
        "lasts": [p.fires[-1] if p.fires else None for p in plans],
        "names": [p.schedule.spec.name for p in plans],
        "definition_ids": [p.schedule.definition_id for p in plans],
        "versions": [p.schedule.definition_version for p in plans],
        "jobs": [p.schedule.spec.job for p in plans],
        "priorities": [p.template.priority for p in plans],
        "max_attempts": [p.template.max_attempts for p in plans],
        "max_lost": [p.template.max_lost for p in plans],
        "timeouts": [p.template.timeout_seconds for p in plans],
        "scopes": [p.schedule.spec.scope for p in plans],
        "scope_ids": [p.schedule.spec.scope_id for p in plans],
        "payloads": [p.template.payload for p in plans],
    }


def _slot_parameters(plans: Sequence[FirePlan]) -> dict[str, list[Any]]:
    fires = [(p.schedule.id, slot) for p in plans for slot in p.fires]
    skips = [(p.schedule.id, skip) for p in plans for skip in p.skips]
    return {
        "fire_ids": [schedule for schedule, _ in fires],
        "fire_slots": [slot for _, slot in fires],
        "skip_ids": [schedule for schedule, _ in skips],
        "skip_firsts": [skip.first for _, skip in skips],
        "skip_lasts": [skip.last for _, skip in skips],
        "skip_counts": [skip.slots for _, skip in skips],
        "skip_outcomes": [skip.outcome for _, skip in skips],
        "skip_messages": [skip.message for _, skip in skips],
    }


async def fire_failed(t: FencedTx, schedule: DueSchedule, error: str, *, delay_seconds: float, final: bool) -> bool:
    """Notes a fire that could not be made; `final` gives up. False when the schedule was changed meanwhile."""
    row = await t.fetch_one(
        _sql.fire_failed,
        {
            "id": schedule.id,
            "row_version": schedule.version,
            "expected": schedule.next_run_at,
            "error": error,
            "delay": delay_seconds,
            "final": final,
        },
    )
    return row is not None


async def create(
    t: Tx, spec: ScheduleSpec, spec_hash: str, *, definition_id: int, next_run_at: datetime | None, actor: str
) -> int | None:
    """A new schedule at version 1; None when the name was taken meanwhile."""
    row = await t.fetch_one(_sql.create, _written(spec, spec_hash, definition_id, next_run_at, actor))
    return None if row is None else int(row["version"])


async def update(
    t: Tx,
    old: StoredSchedule,
    spec: ScheduleSpec,
    spec_hash: str,
    *,
    definition_id: int,
    next_run_at: datetime | None,
    actor: str,
) -> int | None:
    """The next version of a locked schedule; None when it changed meanwhile."""
    written = _written(spec, spec_hash, definition_id, next_run_at, actor)
    row = await t.fetch_one(_sql.update, {**written, "id": old.id, "version": old.due.version})
    return None if row is None else int(row["version"])


async def unstarted_ahead(t: Tx, schedule_id: int, now: datetime) -> list[AheadOfSlot]:
    """Runs of slots after `now` that were not sent, locked."""
    rows = await t.fetch_all(_sql.unstarted_ahead, {"id": schedule_id, "now": now})
    return [AheadOfSlot(**{**row, "state": RunState(row["state"])}) for row in rows]


def _written(
    spec: ScheduleSpec, spec_hash: str, definition_id: int, next_run_at: datetime | None, actor: str
) -> Mapping[str, Any]:
    return {
        "name": spec.name,
        "definition_id": definition_id,
        "spec": canonical_json(spec.to_json()),
        "hash": spec_hash,
        "timezone": spec.rule.timezone,
        "enabled": spec.enabled,
        "next": next_run_at,
        "scope": spec.scope,
        "scope_id": spec.scope_id,
        "actor": actor,
    }


def _due(row: Row) -> DueSchedule:
    return DueSchedule(
        id=row["id"],
        version=row["version"],
        spec=ScheduleSpec.from_json(row["spec"]),
        next_run_at=row["next_run_at"],
        fire_retry_count=row["fire_retry_count"],
        definition_id=row["definition_id"],
        definition_version=row["definition_version"],
        job_enabled=row["job_enabled"],
    )
