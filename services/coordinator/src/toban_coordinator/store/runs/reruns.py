"""Runs that repeat others, and what people remark about runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from toban_coordinator.store.cluster.audit import caller_params
from toban_domain.run import RunState
from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A run, with what it was made from; `payload` is JSON."""

    id: int
    job: str
    definition_id: int
    definition_version: int
    state: RunState
    payload: str
    priority: int
    scope: str
    scope_id: str
    # What readers of the run do not see of its payload.
    redact: Sequence[str]


@dataclass(frozen=True, slots=True)
class Repeated:
    """Run `made` repeats run `source`."""

    source: int
    made: int
    reason: str = ""


async def source(t: Tx, run_id: int) -> Source | None:
    """What a run was made from; None when there is no such run."""
    row = await t.fetch_one(_sql.source, {"id": run_id})
    return None if row is None else Source(**{**row, "state": RunState(row["state"])})


async def ended_at(t: Tx, run_id: int) -> tuple[int, Sequence[str]]:
    """The index of the step at which a finished run ended, and the ids of the steps of its definition; (0, ()) when the run is gone."""
    row = await t.fetch_one(_sql.ended_at, {"id": run_id})
    return (0, ()) if row is None else (row["step"], row["ids"])


async def begin_at_step(t: Tx, run_id: int, step: int, step_id: str, *, actor: str) -> None:
    """A rerun that this transaction has made begins with the step of this index, in all its attempts."""
    await t.execute(_sql.begin_at_step, {"id": run_id, "step": step, "step_id": step_id, "actor": actor})


async def note(t: Tx, runs: Sequence[Repeated], *, actor: str) -> None:
    """An event of each repeated run that names the new one."""
    given = [{"source": run.source, "made": run.made, "reason": run.reason} for run in runs]
    await t.execute(_sql.note, {"runs": json.dumps(given), "actor": actor})


async def remark(t: Tx, run_id: int, text: str, *, actor: str, most: int) -> bool | None:
    """Keeps a remark about a run, also in the audit; False when it has `most` of them, None when there is no such run."""
    row = await t.fetch_one(_sql.remark, {"id": run_id, "text": text, "actor": actor, "most": most, **caller_params()})
    assert row is not None
    return bool(row["kept"]) if row["found"] else None
