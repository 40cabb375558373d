"""Sums and choices of the first page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from toban_admin_web.decide.records import Cluster, Executor, Schedule

# A leader beats every 0.3 s and is replaced after a second.
SILENT_AFTER = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class Slots:
    """Slots of executors that take work: how many are in use, of how many, on how many executors."""

    used: int
    total: int
    executors: int


def slots_of(executors: Iterable[Executor]) -> Slots:
    """The sum over executors that are on; what still runs on others counts as used."""
    listed = list(executors)
    on = [one for one in listed if one.state == "on"]
    return Slots(sum(one.running for one in listed), sum(one.slots for one in on), len(on))


def next_due(schedules: Iterable[Schedule], count: int) -> Sequence[Schedule]:
    """The active schedules that fire next, soonest first."""
    active = [one for one in schedules if one.enabled and one.status == "active" and one.next_run_at is not None]
    return sorted(active, key=lambda one: (one.next_run_at, one.name))[:count]


def leadership(cluster: Cluster) -> str:
    """leads, silent (its beat stands still: another one is about to take over) or none."""
    if not cluster.leader_address or cluster.last_beat_at is None or cluster.server_time is None:
        return "none"
    return "leads" if cluster.server_time - cluster.last_beat_at < SILENT_AFTER else "silent"
