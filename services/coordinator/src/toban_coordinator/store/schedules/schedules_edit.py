"""Schedules as operators change them: locked by name, conditional on the version, counted from PostgreSQL's clock (docs/fencing.md 3.12)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toban_coordinator.store.schedules.schedules import due_of
from toban_domain.fire_plan import DueSchedule
from toban_domain.run import RunState
from toban_domain.schedule import ScheduleSpec
from toban_store import array_literals, queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """A schedule as stored and locked; `due` is what a fire would look at. status: active | paused | failed. `redact` is what its job hides."""

    due: DueSchedule
    spec_hash: str
    enabled: bool
    status: str
    status_reason: str
    status_actor: str
    paused_until: datetime | None
    created_at: datetime
    redact: Sequence[str]

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
    schedule_id: int
    slot: datetime
    state: RunState
    token: int | None
    attempt: int
    lost_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A schedule as it is to be. `old` is the locked one that it replaces, None for a new one; `next_run_at` its first slot to settle."""

    old: StoredSchedule | None
    spec: ScheduleSpec
    spec_hash: str
    definition_id: int
    next_run_at: datetime | None


async def lock(t: Tx, names: Sequence[str], *, definition_ids: Sequence[int] = ()) -> list[StoredSchedule]:
    """Those of `names` that exist, and every schedule of these definitions, locked; in the order of their ids."""
    found = await t.fetch_all(_sql.lock, {"names": list(names), "definition_ids": list(definition_ids)})
    rows = await t.fetch_all(_sql.locked, {"ids": array_literals.numbers(row["id"] for row in found)}) if found else []
    return [
        StoredSchedule(
            due=due_of(row),
            spec_hash=row["spec_hash"],
            enabled=row["enabled"],
            status=row["status"],
            status_reason=row["status_reason"],
            status_actor=row["status_actor"],
            paused_until=row["paused_until"],
            created_at=row["created_at"],
            redact=row["redact"],
        )
        for row in rows
    ]


async def moment(t: Tx) -> datetime:
    """PostgreSQL's time now. Ask after locking: edits of one schedule then have times in the order of their commits."""
    row = await t.fetch_one(_sql.moment)
    assert row is not None
    now: datetime = row["now"]
    return now


async def create(t: Tx, written: Sequence[Written], *, actor: str) -> dict[str, int]:
    """New schedules at version 1, by name; one whose name was taken meanwhile is missing."""
    return _versions(await t.fetch_all(_sql.create, {"rows": _rows(written), "actor": actor}))


async def update(t: Tx, written: Sequence[Written], *, actor: str) -> dict[str, int]:
    """The next versions of locked schedules, by name; one that changed meanwhile is missing. A failed one is active again."""
    return _versions(await t.fetch_all(_sql.update, {"rows": _rows(written), "actor": actor}))


async def renew(t: Tx, nexts: Sequence[tuple[StoredSchedule, datetime | None]]) -> dict[str, int]:
    """The next versions, by name, of locked schedules that only get another next slot; one that changed meanwhile is missing."""
    parameters = {
        "ids": array_literals.numbers(old.id for old, _ in nexts),
        "versions": array_literals.numbers(old.due.version for old, _ in nexts),
        "nexts": array_literals.times(at for _, at in nexts),
    }
    return _versions(await t.fetch_all(_sql.renew, parameters))


async def set_status(
    t: Tx,
    old: StoredSchedule,
    status: str,
    *,
    reason: str,
    until: datetime | None,
    next_run_at: datetime | None,
    actor: str,
) -> int | None:
    """The next version of a locked schedule, with another status; `reason` says why it is not active, `until` when a pause ends by itself.

    None when it changed meanwhile.
    """
    parameters = {
        "id": old.id,
        "version": old.due.version,
        "expected": old.status,
        "status": status,
        "reason": reason,
        "status_actor": "" if status == "active" else actor,
        "until": until,
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
    """Up to where deleted schedules of these names were settled: one that is created again has no slot before."""
    if not names:
        return {}
    rows = await t.fetch_all(_sql.settled_until, {"names": list(names)})
    return {row["name"]: row["settled_until"] for row in rows}


async def unstarted_ahead(t: Tx, schedule_ids: Sequence[int], now: datetime) -> list[AheadOfSlot]:
    """Runs of slots after `now` of these schedules that were not sent, locked in the order of their ids."""
    rows = await t.fetch_all(_sql.unstarted_ahead, {"ids": array_literals.numbers(schedule_ids), "now": now})
    return [AheadOfSlot(**{**row, "state": RunState(row["state"])}) for row in rows]


def _versions(rows: Sequence[Row]) -> dict[str, int]:
    return {row["name"]: row["version"] for row in rows}


def _rows(written: Sequence[Written]) -> str:
    return json.dumps([_row(one) for one in written])


def _row(one: Written) -> Mapping[str, Any]:
    spec = one.spec
    return {
        "id": one.old.id if one.old else None,
        "version": one.old.due.version if one.old else None,
        "name": spec.name,
        "definition_id": one.definition_id,
        "spec": spec.to_json(),
        "hash": one.spec_hash,
        "timezone": spec.rule.timezone,
        "enabled": spec.enabled,
        "next_run_at": one.next_run_at.isoformat() if one.next_run_at else None,
        "scope": spec.scope,
        "scope_id": spec.scope_id,
    }
