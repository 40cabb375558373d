"""What an operator does to leadership: a planned hand-over, and an epoch to step over.

The order to hand over is in PostgreSQL, where the leader reads it with each beat (docs/fencing.md 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from toban_coordinator.ports.leader import LeaderSource, LeaderView
from toban_coordinator.store.cluster import audit, epoch_claims, leader, read_models
from toban_domain.epoch import GENERATION_WARNING, MAX_GENERATION, Epoch, generation_above, term_of
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
class AdoptedEpoch:
    """The leader row's epoch before and after."""

    before: int
    after: int

    @property
    def generations_consumed(self) -> int:
        """How many of the 4095 generations this took."""
        return Epoch.unpack(self.after).generation - Epoch.unpack(self.before).generation

    @property
    def generations_left(self) -> int:
        """How many are left."""
        return MAX_GENERATION - Epoch.unpack(self.after).generation


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
            await audit.note(t, actor, "demote", f"leader of epoch {epoch}", reason, before=before)
        _log.warning("operator requested a hand-over", epoch=epoch, address=present["address"], actor=actor)
        return await self._next_leader(epoch)

    async def adopt_epoch(self, epoch: int, *, reason: str, actor: str) -> AdoptedEpoch:
        """Begin a generation above the epoch of an executor that cannot prove it. Works without a leader; a present leader is replaced.

        Raises INVALID_ARGUMENT, RESOURCE_INVALID_STATE when it is covered already or leaves too few generations, CONFLICT when the epoch
        changes meanwhile.
        """
        if not 0 < epoch < 1 << 63:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, f"{epoch} is not an epoch; give the one that `toban doctor` shows"
            )
        async with tx(self.pool) as t:
            present = (await read_models.leader(t))["epoch"]
            adopted = AdoptedEpoch(before=present, after=_generation_over(epoch, present))
            if not await leader.raise_epoch(t, observed=present, epoch=adopted.after):
                raise TobanError(ErrorCode.CONFLICT, "the leader's epoch changed meanwhile; try again")
            await epoch_claims.forget(t)
            before, after = {"epoch": adopted.before}, {"epoch": adopted.after}
            await audit.note(t, actor, "adopt_epoch", f"epoch {epoch}", reason, before=before, after=after)
        _log.warning("operator adopted an epoch", epoch=epoch, before=present, after=adopted.after, actor=actor)
        return adopted

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


def _generation_over(epoch: int, present: int) -> int:
    """Raises RESOURCE_INVALID_STATE unless there is a reason and room for it."""
    if term_of(epoch) <= present:
        problem = f"epoch {epoch} is not above the leader's {present}, so there is nothing to adopt"
        raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, f"{problem}; the executor registers by itself")
    if Epoch.unpack(epoch).generation >= GENERATION_WARNING:
        raise TobanError(
            ErrorCode.RESOURCE_INVALID_STATE,
            f"epoch {epoch} is of generation {Epoch.unpack(epoch).generation} of {MAX_GENERATION}: to adopt it would use them up; "
            "give that executor a new state directory",
        )
    return generation_above(epoch)


async def _order(t: Tx, present: Row, epoch: int) -> None:
    if present["resigned"]:
        raise no_leader(present["epoch"])
    if present["epoch"] != epoch or not await leader.demote(t, epoch):
        raise stale_epoch(seen=epoch, present=present["epoch"])
