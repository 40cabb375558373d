"""Schedules: which are due, and the fire that turns slots into runs. Edits are in schedules_edit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from toban_coordinator.decide.schedules.pauses import PauseEnd
from toban_domain.fire_plan import DueSchedule, FirePlan, Skip
from toban_domain.redacted import masked_payload_of
from toban_domain.schedule import RuleSpec, ScheduleSpec
from toban_store import array_literals, queries
from toban_store.tx import FencedTx, Row, Tx

_sql = queries.load(__name__)
_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Fired:
    """What a fire wrote: the ids of the schedules that it advanced, and how many runs it made.

    The others were changed meanwhile, or an edit holds them at this moment.
    """

    advanced: frozenset[int]
    made: int


async def due(
    t: Tx,
    now: datetime,
    until: datetime,
    *,
    limit: int,
    after: DueSchedule | None = None,
    since: datetime = _BEFORE_ALL,
) -> list[DueSchedule]:
    """Schedules whose next slot lies from `since` up to `until`, earliest first; `after` is the last one of the page before."""
    place = {"after_slot": after.next_run_at if after else since, "after_id": after.id if after else 0}
    rows = await t.fetch_all(_sql.due, {"now": now, "until": until, "limit": limit, **place})
    return [due_of(row) for row in rows]


async def made_slots(t: Tx, of: Sequence[DueSchedule]) -> dict[int, set[datetime]]:
    """Schedule → its slots, from the next one on, that have runs already."""
    known = [schedule for schedule in of if schedule.next_run_at is not None]
    parameters = {"ids": [one.id for one in known], "froms": [one.next_run_at for one in known]}
    found: dict[int, set[datetime]] = {}
    for row in await t.fetch_all(_sql.made_slots, parameters) if known else ():
        found.setdefault(row["schedule_id"], set()).add(row["slot"])
    return found


async def next_slot(t: Tx) -> datetime | None:
    """The earliest slot that is not settled yet."""
    row = await t.fetch_one(_sql.next_slot)
    at: datetime | None = row["at"] if row else None
    return at


async def fire(t: Tx, plans: Sequence[FirePlan]) -> Fired:
    """Settles slots: runs, ledger and the advance of each schedule, all conditional on the schedule's version and next slot.

    The leader calls it in a fenced transaction; an edit calls it with the schedule locked.
    """
    row = await t.fetch_one(_sql.fire, {**_plan_parameters(plans), **_fire_parameters(plans)})
    fired = Fired(frozenset(row["advanced"]), row["made"]) if row else Fired(frozenset(), 0)
    skips = [(p.schedule.id, skip) for p in plans for skip in p.skips if p.schedule.id in fired.advanced]
    if skips:
        await t.execute(_sql.skip, _skip_parameters(skips))
    return fired


def _plan_parameters(plans: Sequence[FirePlan]) -> dict[str, str]:
    return {
        "ids": array_literals.numbers(p.schedule.id for p in plans),
        "row_versions": array_literals.numbers(p.schedule.version for p in plans),
        "expected": array_literals.times(p.schedule.next_run_at for p in plans),
        "nexts": array_literals.times(p.next_run_at for p in plans),
        "lasts": array_literals.times(p.fires[-1] if p.fires else None for p in plans),
        "names": array_literals.words(p.schedule.spec.name for p in plans),
        "definition_ids": array_literals.numbers(p.schedule.definition_id for p in plans),
        "versions": array_literals.numbers(p.schedule.definition_version for p in plans),
        "jobs": array_literals.words(p.schedule.spec.job for p in plans),
        "priorities": array_literals.numbers(p.template.priority for p in plans),
        "max_attempts": array_literals.numbers(p.template.max_attempts for p in plans),
        "max_lost": array_literals.numbers(p.template.max_lost for p in plans),
        "timeouts": array_literals.numbers(p.template.timeout_seconds for p in plans),
        "scopes": json.dumps([p.schedule.spec.scope for p in plans]),
        "scope_ids": json.dumps([p.schedule.spec.scope_id for p in plans]),
        "groups": json.dumps([p.template.group for p in plans]),
        # Payloads are JSON already, and together one document.
        "payloads": "[" + ",".join(p.template.payload for p in plans) + "]",
    }


def _fire_parameters(plans: Sequence[FirePlan]) -> dict[str, str]:
    fires = [(p, slot) for p in plans for slot in p.fires]
    own = [p.own.get(slot) for p, slot in fires] if any(p.own for p in plans) else []
    return {
        "fire_ids": array_literals.numbers(p.schedule.id for p, _ in fires),
        "fire_slots": array_literals.times(slot for _, slot in fires),
        "fire_delays": "{" + ",".join(f"{p.delays.get(slot, 0.0):g}" for p, slot in fires) + "}",
        "fire_late": "{"
        + ",".join("t" if p.missed_before and slot < p.missed_before else "f" for p, slot in fires)
        + "}",
        "fire_payloads": "[" + ",".join(one.payload if one else "null" for one in own) + "]",
        "fire_groups": json.dumps([one.group if one else None for one in own]),
    }


def _skip_parameters(skips: Sequence[tuple[int, Skip]]) -> dict[str, list[Any]]:
    return {
        "ids": [schedule for schedule, _ in skips],
        "firsts": [skip.first for _, skip in skips],
        "lasts": [skip.last for _, skip in skips],
        "slots": [skip.slots for _, skip in skips],
        "outcomes": [skip.outcome for _, skip in skips],
        "messages": [skip.message for _, skip in skips],
    }


async def fire_failed(
    t: FencedTx, schedule: DueSchedule, error: str, *, delay_seconds: float, final: bool, counted: bool = True
) -> bool:
    """Notes a fire that could not be made; `final` gives up. False when the schedule was changed meanwhile, or is being edited.

    `counted`: it brings the end of the tries nearer.
    """
    row = await t.fetch_one(
        _sql.fire_failed,
        {
            "id": schedule.id,
            "row_version": schedule.version,
            "expected": schedule.next_run_at,
            "error": error,
            "delay": delay_seconds,
            "final": final,
            "counted": counted,
        },
    )
    return row is not None


async def remove_failed(t: FencedTx, schedule: DueSchedule, *, last: datetime, slots: int) -> None:
    """Removes a schedule that `fire_failed` of this transaction has given up on; `slots` slots up to `last` are due and have no runs."""
    row = await t.fetch_one(_sql.failed_spec, {"id": schedule.id})
    shown = json.dumps(masked_payload_of(row["spec"], row["redact"]) if row else {})
    parameters = {"id": schedule.id, "row_version": schedule.version, "last": last, "slots": slots, "shown": shown}
    await t.execute(_sql.remove_failed, parameters)


async def counts(t: Tx) -> dict[str, int]:
    """How many schedules are active, paused, failed, disabled."""
    row = await t.fetch_one(_sql.counts)
    return dict(row) if row else {}


async def pause_ends(t: Tx, *, limit: int) -> list[PauseEnd]:
    """The earliest ends of pauses of schedules and of disables of jobs, in their order."""
    return [PauseEnd(**row) for row in await t.fetch_all(_sql.pause_ends, {"limit": limit})]


def due_of(row: Row) -> DueSchedule:
    """What a fire looks at, from a row of a block that selects it. Never raises for what the row's spec says: see `broken`."""
    spec, broken = _spec_of(row)
    return DueSchedule(
        id=row["id"],
        version=row["version"],
        spec=spec,
        next_run_at=row["next_run_at"],
        fire_retry_count=row["fire_retry_count"],
        definition_id=row["definition_id"],
        definition_version=row["definition_version"],
        job_enabled=row["job_enabled"],
        job_disabled_why=row["job_disabled_why"],
        last_run_at=row["last_run_at"],
        broken=broken,
    )


def _spec_of(row: Row) -> tuple[ScheduleSpec, str]:
    """The stored spec and "", or what is known without it and why it cannot be read: one such row stops no other schedule."""
    try:
        spec = ScheduleSpec.from_json(row["spec"])
        if (spec.name, spec.job) != (row["name"], row["job"]):
            raise ValueError(f"it is about {spec.name!r} and job {spec.job!r}")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        why = f"the stored schedule cannot be read ({type(error).__name__}: {error}); apply it again"
        return ScheduleSpec(name=row["name"], job=row["job"], rule=RuleSpec()), why
    return spec, ""
