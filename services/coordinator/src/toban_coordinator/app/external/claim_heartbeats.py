"""ExternalWork.Heartbeat and UpdateProgress: claims are extended by (run, token, worker), on any coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban_coordinator.app.external.claim_names import MAX_KEYS, check_count, check_worker
from toban_coordinator.store.external import external_claims
from toban_coordinator.store.external.external_claims import ClaimName, Extended
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_domain.progress import clean
from toban_runtime.group_commit import GroupCommit, GroupLimits
from toban_store.pool import Pool
from toban_store.tx import autocommit

Names = Sequence[ClaimName]


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """Claims that are not the worker's any more, and those that it must stop for a cancel."""

    lost: tuple[AttemptKey, ...]
    cancel: tuple[AttemptKey, ...]


class ClaimHeartbeats:
    """Heartbeats on one coordinator: what comes while a statement is under way goes into the next one."""

    def __init__(self, *, pool: Pool) -> None:
        self._pool = pool
        self._group: GroupCommit[Names, dict[ClaimName, Extended]] = GroupCommit(
            self._extend,
            limits=GroupLimits(max_items=MAX_KEYS, max_size=MAX_KEYS),
            size_of=len,
            name="heartbeats of claims",
        )

    async def extend(self, worker: str, keys: Sequence[AttemptKey]) -> HeartbeatAnswer:
        """Extends the locks of `keys`, after the commit. Raises INVALID_ARGUMENT; any other TobanError when nothing is known to be extended."""
        check_worker(worker)
        check_count(keys, MAX_KEYS, "claims")
        names = [ClaimName(key, worker) for key in dict.fromkeys(keys)]
        found = await self._group.submit(names) if names else {}
        answers = [(name.key, found.get(name)) for name in names]
        return HeartbeatAnswer(
            lost=tuple(key for key, one in answers if one is None or not one.extended),
            cancel=tuple(key for key, one in answers if one is not None and one.canceled),
        )

    async def progress(self, worker: str, key: AttemptKey, *, percentage: int, summary: str) -> bool:
        """Shows how far a claim is; whether its cancel was asked for. Raises INVALID_ARGUMENT, CLAIM_LOST."""
        check_worker(worker)
        if not -1 <= percentage <= 100:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, f"percentage is {percentage}; use 0 to 100, or -1 for no change"
            )
        async with autocommit(self._pool) as t:
            canceled = await external_claims.note_progress(
                t, ClaimName(key, worker), percentage=None if percentage < 0 else percentage, summary=clean(summary)
            )
        if canceled is None:
            raise claim_lost(worker, key)
        return canceled

    async def _extend(self, calls: Sequence[Names]) -> list[dict[ClaimName, Extended]]:
        async with autocommit(self._pool) as t:
            found = await external_claims.extend(t, [name for call in calls for name in call])
        return [found for _ in calls]


def claim_lost(worker: str, key: AttemptKey) -> TobanError:
    """The refusal of what a worker says of a claim that it has no more."""
    return TobanError(
        ErrorCode.CLAIM_LOST,
        f"the claim of run {key.run_id} with token {key.token} is not held by worker {worker!r} any more: stop working on it",
    )
