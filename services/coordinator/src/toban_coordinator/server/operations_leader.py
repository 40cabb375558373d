"""Operations.DemoteLeader: a planned hand-over. The order is in PostgreSQL, where the leader looks with each beat (docs/fencing.md 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

from toban_coordinator.ports.leader import LeaderSource, LeaderView
from toban_coordinator.server.operations_audit import clean_reason
from toban_coordinator.store import audit, leader, read_models
from toban_domain.errors import ErrorCode, TobanError
from toban_observability.logs import get_logger
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.clock import Clock
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, tx

# A leader steps down within a beat; alone it stands aside for two seconds before it leads again.
WAIT_SECONDS = 10.0
LOOK_SECONDS = 0.02
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderDesk:
    """Works from any coordinator, and without Redis."""

    pool: Pool
    leader: LeaderSource
    clock: Clock

    async def demote(self, request: pb.DemoteLeaderRequest, actor: str) -> pb.DemoteLeaderResponse:
        """Answers when the next term has begun.

        Raises CONFLICT when another epoch than the operator saw is the present one, RESOURCE_INVALID_STATE when nobody leads,
        DEADLINE_EXCEEDED when no other term begins.
        """
        if request.epoch <= 0:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, "epoch is missing: say the one that `toban cluster status` shows"
            )
        async with tx(self.pool) as t:
            present = await read_models.leader(t)
            await _order(t, present, request.epoch)
            before = {"epoch": request.epoch, "worker_id": present["worker_id"], "address": present["address"]}
            target = f"leader of epoch {request.epoch}"
            note = audit.AdminAction(
                actor=actor, action="demote", target=target, before=before, reason=clean_reason(request.reason)
            )
            await audit.note(t, note)
        _log.warning("the leader is asked to step down", epoch=request.epoch, address=present["address"], actor=actor)
        view = await self._next_leader(request.epoch)
        return pb.DemoteLeaderResponse(
            new_epoch=view.epoch, leader_worker_id=view.worker_id, leader_address=view.address
        )

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
        raise TobanError(
            ErrorCode.RESOURCE_INVALID_STATE,
            "nobody leads at the moment: there is no one to demote",
            detail={"epoch": present["epoch"]},
        )
    if present["epoch"] != epoch or not await leader.demote(t, epoch):
        raise TobanError(
            ErrorCode.CONFLICT,
            f"epoch {present['epoch']} leads, not {epoch}: another leader than the one you saw; look again before you demote it",
            detail={"epoch": present["epoch"]},
        )
