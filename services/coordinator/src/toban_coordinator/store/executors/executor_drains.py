"""Drains: kept per executor instance, they outlive restarts and re-joins and end by undrain (docs/fencing.md 3.8). And an operator's detach.

None of these is a leader's write: each is conditional on the state of the executor's row.
"""

from __future__ import annotations

from dataclasses import dataclass

from toban_domain.lease import ExecutorState
from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The executor that an operator named. `drain_reason` counts only when it is `drained`."""

    incarnation: str
    worker_id: int
    instance: str
    node_id: str
    state: ExecutorState
    detach_mode: str
    drained: bool
    drain_reason: str


async def subject(t: Tx, worker_id: int) -> Subject | None:
    """The incarnation of that worker id; None when there is none. Not locked: each change names the state that it expects."""
    row = await t.fetch_one(_sql.subject, {"worker_id": worker_id})
    return Subject(**{**row, "state": ExecutorState(row["state"])}) if row else None


async def drain(t: Tx, instance: str, *, reason: str, actor: str) -> bool:
    """No new work for this instance from this commit on; False when it was drained already, which then says the new reason."""
    params = {"instance": instance, "reason": reason, "actor": actor}
    row = await t.fetch_one(_sql.keep_drain, params)
    await t.execute(_sql.start_draining, {"instance": instance})
    await t.notify("assign")
    return bool(row and row["made"])


async def undrain(t: Tx, instance: str) -> bool:
    """Forget the drain; the next heartbeat puts its executor `on`, unless that is stopping. False when it was not drained."""
    return await t.execute(_sql.forget_drain, {"instance": instance}) == 1


async def detach(t: Tx, incarnation: str, *, mode: str) -> bool:
    """on | draining | detached for silence -> detached by an operator; False when its row is in another state."""
    return await t.execute(_sql.detach, {"incarnation": incarnation, "mode": mode}) == 1
