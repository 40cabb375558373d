"""Which executors to ping, detach and fence, from what this coordinator itself has seen (docs/fencing.md 3.5, 3.8)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from toban_domain.lease import ExecutorState
from toban_domain.settings import Settings
from toban_fencing.executor_lease import Sighting, may_fence, observe, take_seconds

# Unanswered pings that a detach needs.
PINGS = 3
# So far apart two reads may be for a wait to go on, seconds.
READ_GAP_SECONDS = 1.0
# The same for two looks at open orders, which come each 5 s.
ORDERS_GAP_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorRow:
    """One incarnation as one read of PostgreSQL showed it. `last_heartbeat` is compared with itself only."""

    cluster: str
    incarnation: str
    state: ExecutorState
    grant_seq: int
    lease_ms: int
    last_heartbeat: float
    attested_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a coordinator remembers of one incarnation: the stand-still of its grants, and since when its heartbeats are silent."""

    row: ExecutorRow
    sighting: Sighting
    silent_since: float


Watch = Mapping[str, Watched]


def watch(
    before: Watch, rows: Sequence[ExecutorRow], *, read_returned_at: float, last_read_at: float | None = None
) -> dict[str, Watched]:
    """The memory after a read: a wait starts again with each change of what it watches, and after a gap between reads.

    So an outage of PostgreSQL is never followed by a fence before the executors could send a heartbeat. Times are this machine's
    BOOTTIME, seconds; `last_read_at` is the return of the read before.
    """
    if last_read_at is not None and read_returned_at - last_read_at > READ_GAP_SECONDS:
        before = {}
    return {row.incarnation: _watched(before.get(row.incarnation), row, read_returned_at) for row in rows}


def _watched(last: Watched | None, row: ExecutorRow, at: float) -> Watched:
    sighting = observe(
        last.sighting if last else None, cluster=row.cluster, grant_seq=row.grant_seq, read_returned_at=at
    )
    silent = last is not None and last.row.last_heartbeat == row.last_heartbeat
    return Watched(row=row, sighting=sighting, silent_since=last.silent_since if last and silent else at)


def told_since(
    before: Mapping[int, float], told: Collection[int], *, now: float, last_look: float | None
) -> dict[int, float]:
    """Since when open orders could have been answered, by their ids; a gap between two looks starts the wait again.

    So an outage, in which no answer could be stored, does not count. Times are this machine's BOOTTIME, seconds.
    """
    if last_look is None or now - last_look > ORDERS_GAP_SECONDS:
        before = {}
    return {order: before.get(order, now) for order in told}


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Seconds without a heartbeat after which an executor is pinged and then detached."""

    heartbeat_ttl: float
    grace: float

    @classmethod
    def of(cls, settings: Settings) -> Silence:
        """As the settings say."""
        return cls(heartbeat_ttl=settings["heartbeat_ttl_seconds"], grace=settings["worker_detach_grace_seconds"])

    @property
    def seconds(self) -> float:
        """The whole wait."""
        return self.heartbeat_ttl + self.grace


@dataclass(frozen=True, slots=True, kw_only=True)
class FencePlan:
    """One incarnation whose lease is over: the counter for the compare-and-set, and why."""

    incarnation: str
    grant_seq: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePlan:
    """What a leader does about leases now."""

    ping: tuple[str, ...]
    detach: tuple[str, ...]
    rejoin: tuple[str, ...]
    fence: tuple[FencePlan, ...]


def plan(watched: Watch, *, unanswered: Mapping[str, int], now: float, silence: Silence) -> LeasePlan:
    """Who to ping, detach, take back and fence. `unanswered` counts pings in a row without an answer since the silence began."""
    ping: list[str] = []
    detach: list[str] = []
    rejoin: list[str] = []
    for incarnation, item in watched.items():
        silent = now - item.silent_since >= silence.seconds
        if silent and item.row.state in (ExecutorState.ON, ExecutorState.DRAINING):
            (detach if unanswered.get(incarnation, 0) >= PINGS else ping).append(incarnation)
        elif item.row.state is ExecutorState.DETACHED and now - item.silent_since < silence.heartbeat_ttl:
            rejoin.append(incarnation)
    return LeasePlan(
        ping=tuple(ping), detach=tuple(detach), rejoin=tuple(rejoin), fence=tuple(fences(watched, now=now))
    )


def fences(watched: Watch, *, now: float) -> list[FencePlan]:
    """Incarnations whose death is attested, or whose grants stood still for a whole lease on this machine's clock."""
    found = []
    for incarnation, item in sorted(watched.items()):
        row = item.row
        if row.attested_reason:
            reason = f"attested: {row.attested_reason}"
        elif may_fence(item.sighting, lease_ms=row.lease_ms, now=now):
            reason = f"no grant for {take_seconds(row.lease_ms):.2f} s"
        else:
            continue
        found.append(FencePlan(incarnation=incarnation, grant_seq=row.grant_seq, reason=reason))
    return found
