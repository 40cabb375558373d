"""Schedules as operators change them: locked by name, conditional on the version, counted from PostgreSQL's clock (docs/fencing.md 3.12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toban_domain.firing import DueSchedule
from toban_domain.payload import canonical_json
from toban_domain.run import RunState
from toban_domain.schedule import ScheduleSpec
from toban_store import queries
from toban_store.scheduler.schedules import due_of
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """A schedule as stored and locked; `due` is what a fire would look at. status: active | paused | failed."""

    due: DueSchedule
    spec_hash: str
    enabled: bool
    status: str
    status_reason: str
    status_actor: str

    @property
    def id(self) -> int:
        """The row's id."""
        return self.due.id

    @property
    def name(self) -> str:
        """Its name."""
        return self.due.spec.name


@dataclass(frozen=True, slots=True, kw_only=True)
class AheadOfSlot:
    """A run of a future slot that was not sent."""

    id: int
    state: RunState
    token: int | None
    attempt: int
    lost_count: int


async def lock_named(t: Tx, names: Sequence[str]) -> dict[str, StoredSchedule]:
    """Those of `names` that exist, locked."""
    rows = await t.fetch_all(_sql.lock_named, {"names": list(names)})
    return {
        row["name"]: StoredSchedule(
            due=due_of(row),
            spec_hash=row["spec_hash"],
            enabled=row["enabled"],
            status=row["status"],
            status_reason=row["status_reason"],
            status_actor=row["status_actor"],
        )
        for row in rows
    }


async def moment(t: Tx) -> datetime:
    """PostgreSQL's time now. Ask after locking: edits of one schedule then have times in the order of their commits."""
    row = await t.fetch_one(_sql.moment)
    assert row is not None
    now: datetime = row["now"]
    return now


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
    """The next version of a locked schedule; None when it changed meanwhile. A failed one is active again."""
    written = _written(spec, spec_hash, definition_id, next_run_at, actor)
    row = await t.fetch_one(_sql.update, {**written, "id": old.id, "version": old.due.version})
    return None if row is None else int(row["version"])


async def set_status(
    t: Tx, old: StoredSchedule, status: str, *, reason: str, next_run_at: datetime | None, actor: str
) -> int | None:
    """The next version of a locked schedule, with another status; `reason` says why it is not active. None when it changed meanwhile."""
    parameters = {
        "id": old.id,
        "version": old.due.version,
        "expected": old.status,
        "status": status,
        "reason": reason,
        "status_actor": "" if status == "active" else actor,
        "next": next_run_at,
        "actor": actor,
    }
    row = await t.fetch_one(_sql.set_status, parameters)
    return None if row is None else int(row["version"])


async def delete(t: Tx, old: StoredSchedule, *, settled_until: datetime, reason: str, actor: str) -> bool:
    """Takes a locked schedule away; False when it changed meanwhile."""
    parameters = {
        "id": old.id,
        "version": old.due.version,
        "settled_until": settled_until,
        "reason": reason,
        "actor": actor,
    }
    return await t.fetch_one(_sql.delete, parameters) is not None


async def settled_until(t: Tx, names: Sequence[str]) -> dict[str, datetime]:
    """Up to where deleted schedules of these names were settled: one that is made anew has no slot before."""
    if not names:
        return {}
    rows = await t.fetch_all(_sql.settled_until, {"names": list(names)})
    return {row["name"]: row["settled_until"] for row in rows}


async def unstarted_ahead(t: Tx, schedule_id: int, now: datetime) -> list[AheadOfSlot]:
    """Runs of slots after `now` that were not sent, locked."""
    rows = await t.fetch_all(_sql.unstarted_ahead, {"id": schedule_id, "now": now})
    return [AheadOfSlot(**{**row, "state": RunState(row["state"])}) for row in rows]


async def names(t: Tx) -> list[str]:
    """The names of all schedules, at most 10,000."""
    return [row["name"] for row in await t.fetch_all(_sql.names)]


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
