"""Which offered steps a round of claims gives to whom, and which locks stand still (docs/external-workers.md)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_fencing.executor_lease import Sighting, may_fence, observe, take_seconds

# So far apart two reads of the claims may be for a wait to go on, seconds.
READ_GAP_SECONDS = 1.0
# Characters of payloads that one answer carries; a gRPC message has at most 4 MiB.
MAX_CHARACTERS = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedStep:
    """An external step that can be claimed. `step` is its index; `result` (JSON) what an earlier external step gave, None = nothing."""

    id: int
    token: int
    rank: int
    scope: str
    scope_id: str
    definition_id: int
    definition_version: int
    attempt: int
    step: int
    scheduled_for: datetime
    payload: str
    result: str | None

    @property
    def size(self) -> int:
        """Characters that an answer carries for it."""
        return len(self.payload) + len(self.result or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenClaim:
    """One claim as one read showed it. `timeout_ms` None = its step has no timeout."""

    cluster: str
    run_id: int
    token: int
    lock_seq: int
    lock_ttl_ms: int
    timeout_ms: int | None
    worker_type: str


@dataclass(frozen=True, slots=True)
class Watched:
    """What a coordinator remembers of one claim: the stand-still of its counter, and since when it has seen the claim."""

    claim: SeenClaim
    sighting: Sighting
    since: float


@dataclass(frozen=True, slots=True)
class EndedLock:
    """A claim whose lock is over. `timed_out`: the timeout of its step has passed, by this machine's clock."""

    claim: SeenClaim
    timed_out: bool


Watch = Mapping[tuple[int, int], Watched]


def hand_out(offered: Sequence[OfferedStep], limits: Sequence[int]) -> list[list[OfferedStep]]:
    """Offers in their order to calls in theirs, each up to its limit and to what an answer carries; one step fits always."""
    rest, given = deque(offered), list[list[OfferedStep]]()
    for limit in limits:
        taken, size = list[OfferedStep](), 0
        while rest and len(taken) < limit and (not taken or size + rest[0].size <= MAX_CHARACTERS):
            size += rest[0].size
            taken.append(rest.popleft())
        given.append(taken)
    return given


def watch(
    before: Watch, claims: Sequence[SeenClaim], *, read_returned_at: float, last_read_at: float | None = None
) -> dict[tuple[int, int], Watched]:
    """The memory after a read: as of executors, a wait starts again with each extension, and after a gap between reads.

    Times are this machine's BOOTTIME, seconds; `last_read_at` is the return of the read before.
    """
    if last_read_at is not None and read_returned_at - last_read_at > READ_GAP_SECONDS:
        before = {}
    return {(c.run_id, c.token): _watched(before.get((c.run_id, c.token)), c, read_returned_at) for c in claims}


def _watched(last: Watched | None, claim: SeenClaim, at: float) -> Watched:
    sighting = observe(
        last.sighting if last else None, cluster=claim.cluster, grant_seq=claim.lock_seq, read_returned_at=at
    )
    same = last is not None and last.claim.cluster == claim.cluster
    return Watched(claim, sighting, last.since if last is not None and same else at)


def ended(watched: Watch, now: float) -> list[EndedLock]:
    """Claims whose worker may not work any more: not extended for a whole lock, or held for longer than the timeout of their step."""
    found = []
    for _, item in sorted(watched.items()):
        timeout = item.claim.timeout_ms
        timed_out = timeout is not None and now - item.since >= take_seconds(timeout)
        if timed_out or may_fence(item.sighting, lease_ms=item.claim.lock_ttl_ms, now=now):
            found.append(EndedLock(item.claim, timed_out))
    return found
