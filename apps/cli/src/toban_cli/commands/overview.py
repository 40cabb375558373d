"""`toban cluster overview`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toban_cli import report
from toban_cli.client import connect
from toban_cli.formatting import NOTHING, age, duration, to_time, wall_now
from toban_cli.messages import pb
from toban_cli.options import Format, Output
from toban_cli.output import Column, show, show_one
from toban_cli.watch import Watch, watch
from toban_domain.outcome import failure_text

if TYPE_CHECKING:
    from datetime import datetime


def overview(output: Output = Format.TABLE, watch_seconds: Watch = None) -> None:
    """Show what needs attention: alerts, failures of the last 24 hours, what waits, missed slots, and what fires next.

    Examples:
    toban cluster overview
    toban cluster overview --watch 5
    """
    with connect() as client:

        def refresh() -> None:
            found = client.call("JobReader.GetOverview", pb.GetOverviewRequest())
            show_one(output, found, page=lambda _wide: _page(found), name=_failed_jobs)

        watch(refresh, watch_seconds, output)


def _failed_jobs(found: Any) -> str:
    return "\n".join(dict.fromkeys(one.job for one in found.failures))


def _page(found: Any) -> None:
    now = to_time(found.server_time) or wall_now()
    more = " (more are not listed)" if found.more_failures else ""
    if found.activity:
        report.echo(f"Runs of the last 24 hours\n{_activity(found.activity)}\n")
    for title, items, columns, empty in (
        ("Alerts", found.alerts, _ALERTS, "none"),
        (f"Failures of the last 24 hours{more}", found.failures, _failures(now), "none"),
        ("Waiting", found.waiting, _WAITING, "nothing"),
        ("Missed slots of the last 24 hours", found.missed, _missed(now), "none"),
        (_coming_title(found), found.coming, _coming(now), "none"),
    ):
        report.echo(f"{title}")
        show(Format.TABLE, items, table=columns, empty=empty)
        report.echo("")


def _activity(intervals: Any) -> str:
    """What ended, and how long the runs had to wait."""
    counts = ", ".join(
        f"{sum(getattr(one, name) for one in intervals):,} {word}"
        for name, word in (("succeeded", "succeeded"), ("failed", "failed"), ("other", "cancelled"))
    )
    longest = max(one.wait_seconds for one in intervals)
    return f"{counts}; within five minutes 95 % of those that began had waited for {duration(longest)} at most"


def _coming_title(found: Any) -> str:
    return f"Next of {found.coming_schedules} schedules that fire within 24 hours"


def _amount(alert: Any) -> str:
    return duration(alert.value) if alert.unit == "s" else f"{alert.value:g}"


def _who(one: Any) -> str:
    return one.job if one.scope == "system" else f"{one.job} ({one.scope} {one.scope_id})"


_ALERTS = [
    Column("ALERT", lambda one: one.name, name=True),
    Column("SEVERITY", lambda one: one.severity),
    Column("VALUE", _amount),
]
_WAITING = [
    Column("FOR", lambda one: one.kind),
    Column("RUNS", lambda one: str(one.runs)),
    Column("OLDEST", lambda one: duration(one.oldest_seconds)),
]


def _failures(now: datetime) -> list[Column]:
    return [
        Column("JOB", _who, name=True),
        Column("RUNS", lambda one: str(one.runs)),
        Column("LAST", lambda one: str(one.last_run_id)),
        Column("STATE", lambda one: one.last_state),
        Column("ENDED", lambda one: age(one.last_finished_at, now)),
        Column("SINCE", lambda one: "succeeded" if one.recovered else NOTHING),
        Column("CAUSE", lambda one: failure_text(one.reason, one.error_summary, one.last_line) or NOTHING, loose=True),
    ]


def _missed(now: datetime) -> list[Column]:
    return [
        Column("SCHEDULE", lambda one: one.schedule, name=True),
        Column("OUTCOME", lambda one: one.outcome),
        Column("SLOTS", lambda one: str(one.slots)),
        Column("LAST", lambda one: age(one.last_slot, now)),
        Column("MESSAGE", lambda one: one.message or NOTHING, loose=True),
    ]


def _coming(now: datetime) -> list[Column]:
    return [
        Column(
            "SCHEDULE",
            lambda one: f"{one.schedule} and {one.schedules - 1} more" if one.schedules > 1 else one.schedule,
            name=True,
        ),
        Column("JOB", lambda one: one.job, name=True),
        Column("FIRES", lambda one: age(one.at, now)),
    ]
