"""What is forgotten by age: whole day partitions, and rows of the unpartitioned tables in small batches. Live runs keep what they need."""

from __future__ import annotations

from collections.abc import Mapping

from toban_store import queries
from toban_store.tx import FencedTx, Tx

_sql = queries.load(__name__)

# Tables whose rows are deleted, and the setting that says after how many days.
ROW_TABLES: Mapping[str, str] = {
    "event_keys": "dedupe_days",
    "event_runs": "history_retention_days",
    "run_slots": "history_retention_days",
    "fire_ledger": "history_retention_days",
    "run_idempotency": "history_retention_days",
    "orphan_results": "history_retention_days",
    "schedules_deleted": "history_retention_days",
    "executors": "history_retention_days",
    "executor_instances": "history_retention_days",
    "coordinators": "history_retention_days",
    "user_sessions": "history_retention_days",
    "api_tokens": "history_retention_days",
    "sign_in_failures": "history_retention_days",
    "admin_action_log": "audit_retention_days",
    "webhook_deliveries": "webhook_retention_days",
}


async def ensure_partitions(t: Tx) -> int:
    """Create the partitions of the next days; returns how many were missing."""
    row = await t.fetch_one(_sql.ensure)
    return int(row["made"]) if row else 0


async def drop_partition(t: Tx, *, days: int) -> str:
    """Drops the oldest partition that lies more than `days` whole days back; its name, "" when there is none to drop.

    Idempotent DDL by date under an advisory lock: it needs no fence. Raises TooLong when its lock is not free within 100 ms.
    """
    row = await t.fetch_one(_sql.drop_partition, {"days": days})
    return (row["dropped"] or "") if row else ""


async def forget(t: FencedTx, table: str, *, days: int, limit: int) -> int:
    """Deletes at most `limit` rows of one of ROW_TABLES that are older than `days`; how many."""
    return await t.execute(getattr(_sql, table), {"days": days, "limit": limit})
