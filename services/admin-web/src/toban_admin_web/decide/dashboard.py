"""What the dashboard shows of GetOverview, and sums and choices of the pages about the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from toban_admin_web.decide.view_models import Cluster, Executor

# A leader sends a heartbeat every 0.3 s and is replaced after a second.
UNRESPONSIVE_AFTER = timedelta(seconds=3)


RUNNING = ("RUNNING", "CANCEL_REQUESTED", "ORPHANED")
"""The states of runs that have begun and not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveAlert:
    """An alert rule whose condition holds; `unit` is s, or "" for a count."""

    name: str
    severity: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRuns:
    """Runs of one job and scope that failed in the last day. `recovered`: one has succeeded since."""

    job: str
    scope: str
    scope_id: str
    runs: int
    last_run_id: int
    last_state: str
    last_finished_at: datetime | None
    error_summary: str
    reason: str
    recovered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRuns:
    """Due runs by what they wait for: executor, retry, limit or worker."""

    kind: str
    runs: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedSlots:
    """Slots of a schedule without a run of their time; `run_id` 0 = the latest got none."""

    schedule: str
    outcome: str
    slots: int
    last_slot: datetime | None
    message: str
    run_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingFire:
    """The next slot of a schedule."""

    schedule: str
    job: str
    at: datetime | None
    timezone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What needs attention; lists without what the person may not see."""

    server_time: datetime | None
    alerts: tuple[ActiveAlert, ...]
    failures: tuple[FailedRuns, ...]
    more_failures: bool
    waiting: tuple[WaitingRuns, ...]
    missed: tuple[MissedSlots, ...]
    coming: tuple[ComingFire, ...]
    coming_schedules: int


@dataclass(frozen=True, slots=True)
class SlotUsage:
    """Slots of executors that accept runs: in use, in total, and on how many executors."""

    used: int
    total: int
    executors: int


def slot_usage(executors: Iterable[Executor]) -> SlotUsage:
    """The sum over executors that are on; a run on any other executor counts as used too."""
    listed = list(executors)
    on = [one for one in listed if one.state == "on"]
    return SlotUsage(sum(one.running for one in listed), sum(one.slots for one in on), len(on))


def leader_status(cluster: Cluster) -> str:
    """active, unresponsive (its heartbeat is overdue: a take-over follows) or none."""
    if not cluster.leader.present or cluster.last_beat_at is None or cluster.server_time is None:
        return "none"
    return "active" if cluster.server_time - cluster.last_beat_at < UNRESPONSIVE_AFTER else "unresponsive"
