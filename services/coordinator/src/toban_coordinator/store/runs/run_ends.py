"""Runs whose ends are events: what triggers may know of them, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from toban_domain.run_end import EndedRun, run_facts
from toban_store import queries
from toban_store.tx import FencedTx, Row, Tx

_sql = queries.load(__name__)
# Columns by another name than that of the fact.
_NAMES = {
    "job_name": "job",
    "definition_version": "version",
    "schedule_name": "schedule",
    "term_signal": "signal",
    "error_summary": "error",
    "trigger_name": "trigger",
}
_INTERNAL = ("labels",)


async def ended(t: Tx, ids: Sequence[int]) -> dict[int, EndedRun]:
    """Those of these runs that are in the history."""
    rows = await t.fetch_all(_sql.ended, {"ids": list(ids)}) if ids else []
    return {row["id"]: _ended(row) for row in rows}


async def known(t: Tx, ids: Sequence[int]) -> dict[int, EndedRun]:
    """The same of these runs, also while they are live."""
    rows = await t.fetch_all(_sql.known, {"ids": list(ids)}) if ids else []
    return {row["id"]: _ended(row) for row in rows}


async def note_failed(t: FencedTx, failures: Sequence[tuple[int, str]]) -> None:
    """Keeps, among the events of runs, why triggers could not start their jobs."""
    given = [{"run_id": run, "message": message} for run, message in failures]
    await t.execute(_sql.note_failed, {"failures": json.dumps(given)})


def _ended(row: Row) -> EndedRun:
    facts = run_facts({_NAMES.get(name, name): value for name, value in row.items() if name not in _INTERNAL})
    return EndedRun(
        id=row["id"],
        job=row["job_name"],
        state=row["state"],
        reason=row["reason"],
        labels=row["labels"],
        scope=row["scope"],
        scope_id=row["scope_id"],
        depth=row["chain_depth"],
        facts=facts,
    )
