"""JobControl.DeclareRunLost: an operator decides that a run waits no more for the executor that was fenced under it (docs/fencing.md 3.7)."""

from __future__ import annotations

from dataclasses import dataclass

from toban_coordinator.app.runs.run_queries import run_not_found
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.runs import orphan_waits, runs
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import RunState
from toban_observability.logs import get_logger
from toban_store.pool import Pool
from toban_store.tx import Tx, tx

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclareLost:
    """Not a leader's write: conditional on the run's row. The leader then lets the run go on elsewhere, or expire by max_lost."""

    pool: Pool

    async def declare(self, run_id: int, *, reason: str, actor: str) -> None:
        """Raises RUN_NOT_FOUND, RESOURCE_INVALID_STATE for a run that does not wait."""
        reason = audit.clean_reason(reason)
        async with tx(self.pool) as t:
            before = await orphan_waits.until(t, run_id)
            message = "an operator declared its executor's attempt lost" + (f": {reason}" if reason else "")
            if before is None or not await orphan_waits.declare_lost(t, run_id, message=message, actor=actor):
                raise await _not_waiting(t, run_id)
            facts = {"orphaned_until": before["orphaned_until"].isoformat(), "executor": before["worker_id"]}
            after = {"orphaned_until": None}
            await audit.note(t, actor, "declare_run_lost", f"run {run_id}", reason, before=facts, after=after)
            await t.notify("reap")
        _log.warning("a run was declared lost", run_id=run_id, actor=actor)


async def _not_waiting(t: Tx, run_id: int) -> TobanError:
    state = await runs.final_state(t, run_id)
    live = await runs.lock_for_cancel(t, run_id) if state is None else None
    if state is None and live is None:
        return run_not_found(run_id)
    now = state or (live.state if live else RunState.ORPHANED)
    return TobanError(
        ErrorCode.RESOURCE_INVALID_STATE,
        f"run {run_id} is {now.value} and waits for no report of a lost executor; only an ORPHANED run of a job with "
        "`on_lease_loss: continue` does",
        detail={"state": now.value},
    )
