"""How far one turn of loop `fire` has come, what failed in it, and how its plans are cut into writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from toban_domain.fire_plan import DueSchedule, FirePlan
from toban_observability.logs import get_logger

# Rows (schedules, runs and skips) that one fenced transaction writes: it has to stay far below its bound. Fewer where they take too long.
WRITE_ROWS = 1000
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule that cannot fire; `cause` where its trace is needed."""

    schedule: DueSchedule
    attempt: int
    error: str
    next_try_seconds: float | None
    cause: Exception | None


@dataclass(slots=True)
class Progress:
    """How far one turn has looked: the last schedule, whether there may be more, and whether one has slots left to settle.

    `missed`: it has come to the schedules that have missed slots; those without go first. `rows` counts what it makes for them.

    `settled` counts schedules that it moved on, `behind` those that an edit holds or has changed meanwhile, `postponed` those that take too
    long; `failures` are told at its end.
    """

    last: DueSchedule | None = None
    more: bool = False
    left: bool = False
    missed: bool = False
    rows: int = 0
    settled: int = 0
    behind: int = 0
    postponed: int = 0
    failures: list[Failure] = field(default_factory=list)
    # Slots of the schedules of this page that have their runs already.
    made: Mapping[int, Collection[datetime]] = field(default_factory=dict)


def log_failures(failures: Sequence[Failure]) -> None:
    """One line a job and outcome, however many of its schedules cannot fire: they mostly share the cause. One that needs its trace goes first."""
    told: dict[tuple[str, bool], list[Failure]] = {}
    for failure in failures:
        told.setdefault((failure.schedule.spec.job, failure.next_try_seconds is None), []).append(failure)
    for (job, _), failed in told.items():
        last = next((failure for failure in reversed(failed) if failure.cause is not None), failed[-1])
        _log.error(
            "schedules cannot fire",
            job=job,
            schedules=len(failed),
            schedule=last.schedule.spec.name,
            attempt=last.attempt,
            error=last.error,
            next_try_seconds=last.next_try_seconds,
            exc_info=last.cause,
        )


def rows_of(plan: FirePlan) -> int:
    """How many rows the write of a plan makes or changes."""
    return 1 + len(plan.fires) + len(plan.skips)


def first_batch(plans: Sequence[FirePlan], most: int) -> tuple[Sequence[FirePlan], Sequence[FirePlan]]:
    """The plans of one fenced transaction, one at least and else at most `most` rows; and those after them."""
    rows = 0
    for place, plan in enumerate(plans):
        rows += rows_of(plan)
        if place and rows > most:
            return plans[:place], plans[place:]
    return plans, ()
