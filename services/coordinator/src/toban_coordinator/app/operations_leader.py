"""A planned hand-over. The order is in PostgreSQL, where the leader reads it with each beat (docs/fencing.md 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

from toban_coordinator.app.audit_log import clean_reason
from toban_coordinator.ports.leader import LeaderSource, LeaderView
from toban_coordinator.store import audit, leader, read_models
from toban_domain.errors import ErrorCode, TobanError
from toban_fencing.operator import no_leader, require_epoch, stale_epoch
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, tx

# A leader steps down within a beat; alone it stands aside for two seconds before it leads again.
WAIT_SECONDS = 10.0
LOOK_SECONDS = 0.02
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderOperations:
    """Works from any coordinator, and without Redis."""

    pool: Pool
    leader: LeaderSource
    clock: Clock

    async def demote(self, epoch: int, *, reason: str, actor: str) -> LeaderView:
        """The next leader, when its term has begun.

        Raises CONFLICT when another epoch than the operator saw is the present one, RESOURCE_INVALID_STATE when there is no leader,
        DEADLINE_EXCEEDED when no other term begins.
        """
        require_epoch(epoch)
        async with tx(self.pool) as t:
            present = await read_models.leader(t)
            await _order(t, present, epoch)
            before = {"epoch": epoch, "worker_id": present["worker_id"], "address": present["address"]}
            target = f"leader of epoch {epoch}"
            note = audit.AdminAction(
                actor=actor, action="demote", target=target, before=before, reason=clean_reason(reason)
            )
            await audit.note(t, note)
        _log.warning("operator requested a hand-over", epoch=epoch, address=present["address"], actor=actor)
        return await self._next_leader(epoch)

    async def _next_leader(self, epoch: int) -> LeaderView:
        until = self.clock.monotonic() + WAIT_SECONDS
        while self.clock.monotonic() < until:
            view = self.leader.view()
            if view.epoch > epoch:
                return view
            await self.clock.sleep(LOOK_SECONDS)
        raise TobanError(
            ErrorCode.DEADLINE_EXCEEDED,
            f"no other term than {epoch} began within {WAIT_SECONDS:g} s; the order stands: look at `toban cluster status`",
        )


async def _order(t: Tx, present: Row, epoch: int) -> None:
    if present["resigned"]:
        raise no_leader(present["epoch"])
    if present["epoch"] != epoch or not await leader.demote(t, epoch):
        raise stale_epoch(seen=epoch, present=present["epoch"])
