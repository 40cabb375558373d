"""Which index a page of finished runs is read by: that of the part of the filter which leaves the fewest runs to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from toban_domain.run import TERMINAL, RunState

# Each job, state and incarnation of an executor is a search in the index of each day; more of them are a filter beside another index.
MAX_SEARCHES = 200


class Driver(StrEnum):
    """The index that is read from its newest run downward."""

    SCHEDULE = "finished_by_schedule"
    SCOPE = "finished_by_scope"
    JOB_AND_STATE = "finished_by_job_and_state"
    JOB = "finished_by_job"
    EXECUTOR = "finished_by_executor"
    STATE = "finished_by_state"
    ORIGIN = "finished_by_origin"
    ID = "finished"


COVERED: Mapping[Driver, frozenset[str]] = {
    Driver.SCHEDULE: frozenset({"schedule"}),
    Driver.SCOPE: frozenset({"scope", "scope_id"}),
    Driver.JOB_AND_STATE: frozenset({"jobs", "states"}),
    Driver.JOB: frozenset({"jobs"}),
    Driver.EXECUTOR: frozenset({"workers"}),
    Driver.STATE: frozenset({"states"}),
    Driver.ORIGIN: frozenset({"origin"}),
    Driver.ID: frozenset(),
}
"""The parts of a filter that each index is searched by."""


def driver_of(
    *,
    schedule: str = "",
    scope: str = "",
    scope_id: str = "",
    jobs: Sequence[str] = (),
    states: Sequence[str] = (),
    workers: Sequence[int] = (),
    origin: str = "",
) -> Driver:
    """The index for a filter. A list of states that includes SUCCEEDED is no reason for one: most runs are in that state."""
    rare = bool(states) and RunState.SUCCEEDED not in states
    options = (
        (Driver.SCHEDULE, bool(schedule)),
        (Driver.SCOPE, scope not in ("", "system") and bool(scope_id)),
        (Driver.JOB_AND_STATE, rare and 0 < len(jobs) * len(states) <= MAX_SEARCHES),
        (Driver.JOB, 0 < len(jobs) <= MAX_SEARCHES),
        (Driver.EXECUTOR, 0 < len(workers) <= MAX_SEARCHES),
        (Driver.STATE, rare),
        (Driver.ORIGIN, bool(origin)),
    )
    return next((driver for driver, fits in options if fits), Driver.ID)


def looks_at(states: Sequence[str]) -> tuple[bool, bool]:
    """(whether live runs can be in these states, whether finished ones can); no states mean any."""
    wanted = {RunState(state) for state in states}
    return not wanted or bool(wanted - TERMINAL), not wanted or bool(wanted & TERMINAL)
