"""Definitions and events in answers of the API."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from toban_admin_web.views.api.answers import Answer, Page
from toban_admin_web.views.api.answers_runs import Run


class NextSlot(Answer):
    """A future slot."""

    at: datetime | None
    local: str = Field(description="ISO 8601 local time with its offset.")
    rule_note: str = Field(
        description="The DST rule that applied: '' | gap shift (02:30 does not exist) | fold first | fold second | ..."
    )


class NextSlots(Answer):
    """The next slots of a schedule."""

    slots: list[NextSlot]
    rule: str
    timezone: str
    note: str = Field(description="Why there are none, or why they will not fire: paused, disabled, ended, failed.")
    clock_change: str = Field(
        description="The next change of the clocks that touches it, and what its rule does; empty = none within a year."
    )


class Fire(Answer):
    """The outcome of a due slot, or of consecutive slots."""

    first_slot: datetime | None
    last_slot: datetime | None
    slots: int
    outcome: str
    run_id: int
    message: str
    at: datetime | None


class Schedule(Answer):
    """A schedule of a job."""

    name: str
    job: str
    enabled: bool
    status: str = Field(description="active | paused | failed")
    spec: Any
    timezone: str
    rule: str = Field(description="The rule as text: 'every 5 minutes', 'cron 0 3 * * *'.")
    next_run_at: datetime | None
    last_run_at: datetime | None
    last_error: str
    version: int
    status_reason: str = Field(description="Why it is paused, and by which actor.")
    status_actor: str
    description: str
    updated_at: datetime | None
    updated_by: str


class Job(Answer):
    """A job with its definition."""

    name: str
    version: int
    enabled: bool
    description: str
    spec: Any = Field(description="The whole definition as applied, canonical JSON.")
    schedules: list[Schedule]
    updated_at: datetime | None
    last_run: Run | None
    disabled_at: datetime | None = Field(description="When a person disabled it; null when no person did.")
    disabled_by: str
    disabled_reason: str


class JobVersion(Answer):
    """The definition of a job as it was at a version."""

    version: int
    spec: Any = Field(description="The whole definition as applied, canonical JSON.")
    created_at: datetime | None
    created_by: str


class JobDay(Answer):
    """How the runs of a job that ended on a day ended. More than 100 of a kind are counted as 100."""

    day: str = Field(description="Of UTC: 2026-11-23.")
    succeeded: int
    failed: int = Field(description="FAILED, TIMED_OUT and EXPIRED.")
    other: int = Field(description="CANCELED and SKIPPED.")


class JobDays(Answer):
    """Days, oldest first; one without ended runs is left out."""

    days: list[JobDay]


class Trigger(Answer):
    """A trigger that starts runs of a job for events."""

    name: str
    job: str
    event_type: str
    enabled: bool
    spec: Any
    version: int
    updated_at: datetime | None
    last_error: str


class Event(Answer):
    """An event of the inbox."""

    id: int
    event_type: str
    payload: Any
    dedupe_key: str
    created_at: datetime | None
    processed_at: datetime | None
    outcome: str = Field(description="started | no_trigger | duplicate | failed; empty until processed.")
    run_ids: list[int]
    message: str
    created_by: str


class Applied(Answer):
    """What applying one manifest did."""

    kind: str
    name: str
    action: str = Field(description="created | updated | unchanged")
    version: int
    next_slots: list[NextSlot] = Field(
        description="Of a created or updated schedule: its next slots, and why they will not fire (paused, disabled ...)."
    )
    note: str
    clock_change: str = Field(
        description="Of a created or updated schedule: the next DST change that skips or repeats one of its local times, "
        "and the effect of its policy."
    )


class DeletedJob(Answer):
    """What was deleted with a job."""

    schedules: list[str]
    triggers: list[str]
    canceled_runs: int


class JobPage(Page):
    """Jobs by name."""

    jobs: list[Job]


class JobVersionPage(Page):
    """Definitions of a job, newest first."""

    versions: list[JobVersion]


class SchedulePage(Page):
    """Schedules by name."""

    schedules: list[Schedule]


class FirePage(Page):
    """Fires, newest first."""

    fires: list[Fire]


class TriggerPage(Page):
    """Triggers by name."""

    triggers: list[Trigger]


class EventPage(Page):
    """Events, newest first."""

    events: list[Event]


class AppliedManifests(Answer):
    """One item for each manifest."""

    applied: list[Applied]


class DeletedSchedule(Answer):
    """What was deleted with a schedule."""

    withdrawn_runs: int = Field(description="Runs of future slots that were not dispatched and were deleted with it.")


class EmittedEvent(Answer):
    """An event that is stored."""

    event_id: int
    duplicate: bool = Field(description="An event of this type with the same key exists; it is the one named here.")
