"""What a sub-leader concludes about the leader it watches (docs/fencing.md 3.1, 3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

# A coordinator whose clock is further off PostgreSQL's than this fires nothing, seconds (docs/fencing.md 3.12).
MAX_SKEW_SECONDS = 2.0


class StreamEnd(StrEnum):
    """How a Peer.Watch stream came to its end."""

    # The other side said that it does not lead any more.
    STEPPED_DOWN = "stepped down"
    BROKEN = "broken"


def is_death(end: StreamEnd, *, reconnect_refused: bool) -> bool:
    """True when the end of a stream is evidence of the leader's death: only with a refused reconnect. A silent stream alone never is."""
    return end is StreamEnd.BROKEN and reconnect_refused


def should_yield(skew: float, others: Sequence[float | None]) -> bool:
    """True when this clock is off by so much that it may not fire, and the clock of at least one reachable coordinator in `others` is right.

    Skews in seconds, None: not known yet. Half the bound for the others, so that two clocks near the bound do not send the leadership
    to and fro. When every clock is off (it may be PostgreSQL's), no leader yields: everything but firing goes on.
    """
    return abs(skew) > MAX_SKEW_SECONDS and any(
        other is not None and abs(other) <= MAX_SKEW_SECONDS / 2 for other in others
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSigns:
    """What a sub-leader knows at one look. `ticking` is the leader's own word by Peer.GetStatus, None when it did not answer."""

    last_tick_at: datetime | None
    beat_still_seconds: float
    ticking: bool | None


def is_suspect(signs: LeaderSigns, *, now: datetime, stale_seconds: float) -> bool:
    """True when PostgreSQL or Redis show no tick, or no beat, for too long: then the leader itself is asked."""
    late = signs.last_tick_at is not None and now - signs.last_tick_at > timedelta(seconds=stale_seconds)
    return late or signs.beat_still_seconds > stale_seconds


def should_degrade(signs: LeaderSigns, *, now: datetime, stale_seconds: float) -> bool:
    """True when a suspect leader does not answer, or says itself that it does not tick."""
    return is_suspect(signs, now=now, stale_seconds=stale_seconds) and not signs.ticking


@dataclass(frozen=True, slots=True)
class Standby:
    """A coordinator that is there and does not lead."""

    incarnation: str
    worker_id: int
    node_id: str


def is_subleader(me: Standby, others: Sequence[Standby], *, leader_node: str) -> bool:
    """Whether `me` is the sub-leader of its node: of the node's standbys the one with the lowest worker id.

    The leader's own node has a sub-leader only while no other node has a standby: what takes the leader's machine would take both.
    """
    standbys = [me, *others]
    elsewhere = [standby for standby in standbys if standby.node_id != leader_node]
    here = [standby for standby in elsewhere or standbys if standby.node_id == me.node_id]
    return min(here, key=lambda standby: standby.worker_id, default=None) == me
