"""ORPHANED runs whose processes may still run (on_lease_loss: continue): they wait for a report of their executor (docs/fencing.md 3.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toban_domain.outcome import AttemptKey
from toban_store import queries
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, autocommit

_sql = queries.load(__name__)


async def end_of(t: Tx, keys: Sequence[AttemptKey]) -> int:
    """End the wait of these: nothing of the attempts runs any more, by their executor's word. How many waited."""
    if not keys:
        return 0
    params = {"ids": [key.run_id for key in keys], "tokens": [key.token for key in keys]}
    return await t.execute(_sql.end_of, params)


async def end_of_own(t: Tx, incarnation: str, *, nonce: int) -> int:
    """End the wait of runs of an incarnation that has ended, by its own word or its witness's. How many waited."""
    return await t.execute(_sql.end_of_own, {"incarnation": incarnation, "nonce": nonce})


async def end_of_dead(
    t: Tx,
    *,
    instance: str,
    node_id: str,
    boot_id: str,
    incarnation: str,
    previous: str,
    silent: float,
    in_cluster: bool,
    proven: Sequence[str],
) -> int:
    """End the wait of runs of earlier incarnations whose death a new one attests, which may speak for `proven`. How many waited.

    `silent` is as for `executors.attest`; `in_cluster`: jobs of the new one are pods.
    """
    params = {
        "instance": instance,
        "node_id": node_id,
        "boot_id": boot_id,
        "incarnation": incarnation,
        "previous": previous,
        "silent": silent,
        "in_cluster": in_cluster,
        "proven": proven,
    }
    return await t.execute(_sql.end_of_dead, params)


async def declare_lost(t: Tx, run_id: int, *, message: str, actor: str) -> bool:
    """End the wait of a run, with its event; False when it does not wait."""
    params = {"id": run_id, "message": message, "actor": actor}
    return await t.fetch_one(_sql.declare_lost, params) is not None


async def until(t: Tx, run_id: int) -> Row | None:
    """Until when a run waits (`orphaned_until`), and `worker_id`, `node_id` and `off_at` of its executor; None when it does not wait."""
    return await t.fetch_one(_sql.until, {"id": run_id})


async def given_up(pool: Pool, held: Mapping[str, Sequence[AttemptKey]]) -> dict[str, list[AttemptKey]]:
    """Of the attempts that incarnations still hold, those that are not waited for; only of incarnations that are off."""
    pairs = [(incarnation, key) for incarnation, keys in held.items() for key in keys]
    params = {
        "holders": [incarnation for incarnation, _ in pairs],
        "runs": [key.run_id for _, key in pairs],
        "tokens": [key.token for _, key in pairs],
    }
    found: dict[str, list[AttemptKey]] = {}
    async with autocommit(pool) as t:
        for row in await t.fetch_all(_sql.given_up, params):
            found.setdefault(row["incarnation"], []).append(AttemptKey(row["run_id"], row["token"]))
    return found
