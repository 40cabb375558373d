"""Creates rows of executors and of runs assigned to them."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from toban_coordinator.store.executors import executors
from toban_runtime.ids import IdSource
from toban_store.pool import Pool

LEASE_MS = 10_000
_IDS = IdSource()
Sql = Callable[..., Awaitable[Any]]


def registration(**changes: Any) -> executors.Registration:
    """The registration of a new incarnation, with `changes`."""
    made = executors.Registration(
        incarnation=_IDS.uuid(),
        instance="x1",
        node_id="n1",
        boot_id="b1",
        pid=7,
        grpc_host="127.0.0.1",
        grpc_port=4000,
        slots=4,
        labels={"zone": "a"},
    )
    return replace(made, **changes)


async def register(pool: Pool, **changes: Any) -> str:
    """Registers a new incarnation; returns its id."""
    made = registration(**changes)
    answer = await executors.register(pool, made, key_hash=b"h", lease_ms=LEASE_MS)
    assert answer is not None
    await executors.attest(pool, made)
    return made.incarnation


async def hold(sql: Sql, incarnation: str, state: str, token: int | None) -> int:
    """Inserts a run assigned to an incarnation, with its attempt; returns its id."""
    (row,) = await sql(
        "INSERT INTO scheduler.runs_live (definition_id, definition_version, job_name, origin, scheduled_for, state, token, log_day,"
        " assigned_incarnation, assigned_worker_id, assigned_at, dispatched_at, started_at) VALUES (1, 1, 'j', 'demand', now(), %s, %s,"
        " current_date, %s, 1, now(), CASE WHEN %s::bigint > 0 THEN now() END, CASE WHEN %s = 'RUNNING' THEN now() END) RETURNING id",
        state, token, incarnation, token, state,
    )  # fmt: skip
    if token:
        await sql(
            "INSERT INTO scheduler.job_attempts (log_day, run_id, token, attempt, leader_epoch, incarnation, worker_id, dispatched_at)"
            " VALUES (current_date, %s, %s, 1, 1, %s, 1, now())",
            row[0], token, incarnation,
        )  # fmt: skip
    return int(row[0])


async def run_state(sql: Sql, run_id: int) -> str:
    """The state of a live run."""
    return str((await sql("SELECT state FROM scheduler.runs_live WHERE id = %s", run_id))[0][0])
