"""One look at what changes. Reads only."""

from __future__ import annotations

from toban_coordinator.decide.cluster.changes import MOST_RUNS, Look
from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)
# Events are committed up to so long after their time, seconds.
WINDOW_SECONDS = 5.0
MOST_EVENTS = 4 * MOST_RUNS


async def look(t: Tx) -> Look:
    """The marks of now."""
    events = await t.fetch_all(_sql.events, {"window": WINDOW_SECONDS, "limit": MOST_EVENTS + 1})
    marks = await t.fetch_one(_sql.marks)
    assert marks is not None, "migrations make the leader's row"
    runs: dict[int, list[str]] = {}
    for row in events:
        runs.setdefault(row["run_id"], []).append(f"{row['at']} {row['type']}")
    return Look(
        cluster=(marks["leader"], marks["executors"]),
        settings=marks["audit"],
        runs={run: sorted(each) for run, each in runs.items()},
        more=len(events) > MOST_EVENTS,
    )
