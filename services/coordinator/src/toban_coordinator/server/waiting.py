"""Why a run waits: gathers the facts for `decide.waiting`."""

from __future__ import annotations

from collections.abc import Sequence

from toban_coordinator.decide.assign import fresh_seconds
from toban_coordinator.decide.wait_reason import LeaderSeen, WaitingRun, waits_for
from toban_coordinator.store import jobs, read_models, runs_assign, settings
from toban_domain.job import JobSpec
from toban_store.tx import Row, Tx


async def why_waiting(t: Tx, run_id: int, events: Sequence[Row]) -> str:
    """One sentence; "" when the run was sent or is over. `events` are those of the run, in order."""
    row = await read_models.waiting(t, run_id)
    if row is None:
        return ""
    key = (row["definition_id"], row["definition_version"])
    spec = (await jobs.versions(t, [key])).get(key)
    last = next((event for event in reversed(events) if event["type"] != "trace"), None)
    refused = last if last is not None and last["type"] == "refused" else None
    run = WaitingRun(
        scheduled_for=row["scheduled_for"],
        not_before=row["not_before"],
        selector=spec.selector if isinstance(spec, JobSpec) else None,
        refused_at=refused["at"] if refused else None,
        refusal=refused["message"] if refused else "",
    )
    leader = await read_models.leader(t)
    seen = LeaderSeen(
        beaten_at=leader["beaten_at"] if leader["epoch"] else None,
        resigned=leader["resigned"],
        settled=leader["settled"],
    )
    fresh = fresh_seconds(await settings.read(t))
    return waits_for(run, seen, await runs_assign.executor_loads(t), row["server_time"], fresh=fresh)
