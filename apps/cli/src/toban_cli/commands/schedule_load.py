"""`toban schedule load`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import call
from toban_cli.formatting import count, local, wall_now
from toban_cli.messages import pb
from toban_cli.options import Format, Output
from toban_cli.output import Column, show, show_one

if TYPE_CHECKING:
    from datetime import datetime

Crowded = Annotated[int, typer.Option("--minutes", "-n", min=1, max=100, help="Number of minutes.")]
Names = Annotated[int, typer.Option("--names", min=1, max=200, help="Number of schedules of each minute.")]


def load(minutes: Crowded = 20, names: Names = 10, output: Output = Format.TABLE) -> None:
    """Show the minutes of the next 24 hours with the most slots, and what fires in them.

    Examples:
    toban schedule load
    toban schedule load --minutes 5 --names 50
    """
    found = call("JobReader.GetComingLoad", pb.GetComingLoadRequest(crowded=minutes, names=names))
    if output is Format.NAME:
        by_name = {one.schedule: one for minute in found.crowded for one in minute.named}
        show(output, by_name.values(), table=[], name=lambda one: one.schedule)
        return
    show_one(output, found, page=lambda _wide: _page(found))


def _page(found: Any) -> None:
    show(Format.TABLE, found.crowded, table=_columns(wall_now()), empty="No schedule fires in the next 24 hours.")
    if found.left_out:
        report.note(f"{count(found.left_out, 'schedule')} left out: reading them takes too long")
    if found.unreadable:
        report.note(f"{count(found.unreadable, 'schedule')} with a rule that cannot be read")


def _columns(now: datetime) -> list[Column]:
    return [
        Column("MINUTE", lambda one: local(one.at, now)),
        Column("SLOTS", lambda one: str(one.slots)),
        Column("SCHEDULES", _who, loose=True, name=True),
    ]


def _who(one: Any) -> str:
    rest = one.schedules - len(one.named)
    return ", ".join(named.schedule for named in one.named) + (f" +{rest}" if rest else "")
