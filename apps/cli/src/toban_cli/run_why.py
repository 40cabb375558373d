"""Why a run waits, was skipped, or is where it is: the page of `toban run why`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from toban_cli.formatting import NOTHING, age, plain_number
from toban_cli.report import echo
from toban_cli.run_details import scope_of
from toban_cli.tables import facts, table

# As far as the coordinator counts.
_COUNTED = 1000


def show_why(found: Any, now: datetime) -> None:
    """Prints the answer first, then what it depends on: checks, holders of limits, executors, the queue."""
    first, *more = found.reasons
    facts(
        [
            ("Run", f"{found.run_id} of {found.job}"),
            ("State", found.state),
            ("Why", first),
            *(("Also", reason) for reason in more),
        ]
    )
    _checks(found)
    _holders(found, now)
    if not found.at_worker:
        _executors(found)
    if found.HasField("turn"):
        _turn(found.turn)


def _checks(found: Any) -> None:
    if found.checks:
        echo("\nBefore it starts")
        rows = [[one.name, "waits" if one.blocks else "ok", one.message] for one in found.checks]
        table(["CHECK", "RESULT", "DETAIL"], rows, loose=["DETAIL"])


def _holders(found: Any, now: datetime) -> None:
    for limit in found.limits:
        if not limit.holders:
            continue
        size = "stopped" if limit.effective < 0 else f"{limit.held} of {limit.effective} taken"
        echo(f"\nHolding {limit.name} ({size}; this run takes {limit.weight})")
        rows = [
            [
                str(run.run_id),
                run.job,
                run.state,
                str(run.weight),
                scope_of(run),
                age(run.since, now),
                run.executor or NOTHING,
            ]
            for run in limit.holders
        ]
        table(["RUN", "JOB", "STATE", "WEIGHT", "SCOPE", "SINCE", "EXECUTOR"], rows, loose=["JOB", "SCOPE", "EXECUTOR"])


def _executors(found: Any) -> None:
    echo("\nExecutors now")
    rows = [
        [
            str(one.worker_id),
            one.executor,
            f"{one.running}/{one.slots}",
            "yes" if one.fits else "no",
            one.message or NOTHING,
        ]
        for one in found.executors
    ]
    table(
        ["WORKER", "EXECUTOR", "SLOTS", "FITS", "WHY NOT"],
        rows,
        loose=["EXECUTOR", "WHY NOT"],
        empty="No executor is registered.",
    )


def _turn(turn: Any) -> None:
    echo(f"\nQueue: {_counted(turn.more_urgent)} more urgent, {_counted(turn.earlier)} earlier of its own scope")
    if len(turn.scopes) > 1:
        rows = [[scope_of(one), _counted(one.waiting), str(one.weight)] for one in turn.scopes]
        table(["SCOPE", "WAITING", "RUNS A TURN"], rows, loose=["SCOPE"])


def _counted(runs: int) -> str:
    return plain_number(runs) + (" or more" if runs >= _COUNTED else "")
