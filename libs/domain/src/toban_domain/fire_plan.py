"""What firing looks at and plans: a due schedule, its slots that become runs, and the stretches that are skipped with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from toban_domain.schedule import ScheduleSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DueSchedule:
    """A schedule with the definition that it starts. `next_run_at` is its first slot that has neither a run nor a ledger row, `last_run_at` its
    newest slot that got a run.

    `broken` says why the stored spec cannot be read ("" = it can); `spec` then holds its name and its job and no rule.
    """

    id: int
    version: int
    spec: ScheduleSpec
    next_run_at: datetime | None
    fire_retry_count: int
    definition_id: int
    definition_version: int
    job_enabled: bool
    last_run_at: datetime | None = None
    broken: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTemplate:
    """What every run of a schedule gets from its definition; `payload` is canonical JSON."""

    payload: str
    priority: int = 0
    max_attempts: int = 1
    max_lost: int = 3
    timeout_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Slots from `first` to `last` that get no run; `outcome` is the ledger's reason."""

    first: datetime
    last: datetime
    slots: int
    outcome: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirePlan:
    """What one schedule does now. `next_run_at` is its next slot that stays unsettled; None = there is none."""

    schedule: DueSchedule
    template: RunTemplate
    fires: tuple[datetime, ...]
    skips: tuple[Skip, ...]
    next_run_at: datetime | None
