"""Sums and choices of the cluster page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from toban_admin_web.decide.view_models import Cluster, Executor, Schedule

# A leader sends a heartbeat every 0.3 s and is replaced after a second.
UNRESPONSIVE_AFTER = timedelta(seconds=3)


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


def next_due(schedules: Iterable[Schedule], count: int) -> Sequence[Schedule]:
    """The active schedules that fire next, soonest first."""
    active = [one for one in schedules if one.enabled and one.status == "active" and one.next_run_at is not None]
    return sorted(active, key=lambda one: (one.next_run_at, one.name))[:count]


def leader_status(cluster: Cluster) -> str:
    """active, unresponsive (its heartbeat is overdue: a take-over follows) or none."""
    if not cluster.leader.present or cluster.last_beat_at is None or cluster.server_time is None:
        return "none"
    return "active" if cluster.server_time - cluster.last_beat_at < UNRESPONSIVE_AFTER else "unresponsive"
