"""Input and result of firing: a due schedule, its slots that become runs, and the ranges of slots that are skipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from toban_domain.schedule import ScheduleSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DueSchedule:
    """A schedule with the definition that it starts. `next_run_at`: its first slot without a run and a ledger row; `last_run_at`: its
    latest slot with a run.

    `job_disabled_why`: by whom and why a person disabled the job, after the words "is disabled".
    `broken`: why the stored spec is unreadable ("" = it is readable); `spec` then has only a name and a job, no rule.
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
    job_disabled_why: str = ""

    @property
    def removed_on_failure(self) -> bool:
        """Whether it goes away when its fires have failed for good; never one that cannot be read."""
        return not self.broken and self.spec.on_failure == "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTemplate:
    """The values that a definition gives each run; `payload` is canonical JSON, `group` that of the concurrency policy (None = none)."""

    payload: str
    priority: int = 0
    max_attempts: int = 1
    max_lost: int = 3
    timeout_seconds: int = 0
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Slots from `first` to `last` that get no run; `outcome` is the reason in the fire ledger."""

    first: datetime
    last: datetime
    slots: int
    outcome: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirePlan:
    """The firing of one schedule. `next_run_at` is its next slot that is not processed; None = there is none.

    `delays`: slot → by how many seconds its run starts later, of those that are spread. Slots before `missed_before` are caught up.
    `own`: slot → what its run is made from instead of `template`, when the payload of the schedule refers to its slot.
    """

    schedule: DueSchedule
    template: RunTemplate
    fires: tuple[datetime, ...]
    skips: tuple[Skip, ...]
    next_run_at: datetime | None
    missed_before: datetime | None = None
    delays: Mapping[datetime, float] = field(default_factory=dict)
    own: Mapping[datetime, RunTemplate] = field(default_factory=dict)
