"""`toban run counts`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import call
from toban_cli.commands.runs import Labels, OfSchedule, OfScope, OnExecutor, Origin, Since, States, Until
from toban_cli.formatting import NOTHING, local, wall_now
from toban_cli.messages import pb
from toban_cli.options import Format, OfJob, Output
from toban_cli.output import Column, show
from toban_cli.run_filter import run_filter
from toban_domain.run import RunState

if TYPE_CHECKING:
    from collections.abc import Sequence


class By(StrEnum):
    """What runs are grouped by."""

    EXECUTOR = "executor"
    JOB = "job"


GroupedBy = Annotated[By, typer.Option("--by", help="What they are grouped by.")]


def count_runs(
    by: GroupedBy = By.JOB,
    job: OfJob = "",
    state: States = None,
    schedule: OfSchedule = "",
    executor: OnExecutor = "",
    origin: Origin = "",
    scope: OfScope = "",
    label: Labels = None,
    since: Since = "1h",
    until: Until = "",
    output: Output = Format.TABLE,
) -> None:
    """Count the runs that ran in a span of time, by job or executor and by state.

    Examples:
    toban run counts --since 24h
    toban run counts --by executor --state FAILED --since 7d
    """
    now = wall_now()
    wanted = run_filter(
        pb.ListRunsRequest(job=job, schedule=schedule, executor=executor, origin=origin),
        states=state or [],
        scope=scope,
        labels=label or [],
        since=since,
        until=until,
        now=now,
    )
    found = call("JobReader.CountRuns", pb.CountRunsRequest(filter=wanted, by=by))
    asked, counted = wanted.active_from.ToDatetime(), found.since.ToDatetime()
    if counted > asked:
        report.note(
            f"too many runs: those before {local(found.since, now)} are not counted; narrow the span or the filter"
        )
    show(output, found.groups, table=_columns(by, found.groups), empty="No such run ran in this span.")


def _columns(by: By, groups: Sequence[Any]) -> list[Column]:
    states = [state for state in RunState if any(one.runs.get(state) for one in groups)]
    return [
        Column(by.upper(), lambda one: one.name or f"({one.others} others)", name=True),
        Column("RUNS", lambda one: str(sum(one.runs.values()))),
        *(_of_state(state) for state in states),
    ]


def _of_state(state: RunState) -> Column:
    return Column(state.value, lambda one: str(one.runs.get(state) or NOTHING))
