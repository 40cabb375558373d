"""Sums and choices of the pages about the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from toban_admin_web.decide.api_models import Cluster, Executor, Member
from toban_domain.epoch import Epoch
from toban_fencing.operator import SeenLeader

# A leader sends a heartbeat every 0.3 s and is replaced after a second.
UNRESPONSIVE_AFTER = timedelta(seconds=3)


RUNNING = ("RUNNING", "CANCEL_REQUESTED", "ORPHANED")
"""The states of runs that have begun and not ended."""


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


def seen_leader(cluster: Cluster) -> SeenLeader:
    """The leader that the page shows; an action on it names this epoch."""
    return SeenLeader(epoch=int(cluster.epoch), worker_id=cluster.leader_worker_id, address=cluster.leader_address)


def successors(cluster: Cluster) -> list[Member]:
    """Who can take over from the leader: the other coordinators that are ready, sub-leaders first."""
    ready = [one for one in cluster.coordinators if one.status == "ok" and one.role != "leader"]
    return sorted(ready, key=lambda one: one.role != "subleader")


def leader_status(cluster: Cluster) -> str:
    """active, unresponsive (its heartbeat is overdue: a take-over follows) or none."""
    if not cluster.leader_address or cluster.last_beat_at is None or cluster.server_time is None:
        return "none"
    return "active" if cluster.server_time - cluster.last_beat_at < UNRESPONSIVE_AFTER else "unresponsive"


def term_name(epoch: int | str) -> str:
    """The number of the term in its generation, with the generation in front from the second on: 3, 2.1; "–" without a term."""
    try:
        parts = Epoch.unpack(int(epoch))
    except ValueError:
        return "–"
    if not parts.counter:
        return "–"
    return str(parts.counter) if parts.generation <= 1 else f"{parts.generation}.{parts.counter}"
