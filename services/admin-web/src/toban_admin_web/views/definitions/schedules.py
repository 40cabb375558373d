"""Schedules, and one schedule with its next and last slots."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.api_models import FirePage, NextSlots, Schedule, SchedulePage
from toban_admin_web.decide.filters import name_filter, wants_part
from toban_admin_web.decide.json_fields import as_object, indent
from toban_admin_web.decide.month_calendar import month_calendar, month_of, rule_of, zone_of
from toban_admin_web.views.people.session_gate import see_other
from toban_admin_web.views.view_context import context, if_implemented, page, read
from toban_domain.errors import ErrorCode, TobanError

# On one page.
SCHEDULES = 50
NEXT_SLOTS = 10
LAST_FIRES = 20
# For the calendar of a month; the most that a page of the ledger has.
MONTH_FIRES = 500

views = Blueprint("schedules", __name__)


@views.get("/schedules")
def listed() -> Response:
    """Schedules by name."""
    cursor = request.args.get("cursor", "")
    name = name_filter(request.args)
    schedules = read("JobReader.ListSchedules", SchedulePage, name=name, page={"limit": SCHEDULES, "cursor": cursor})
    return page("schedules", schedules=schedules, cursor=cursor, name=name)


@views.get("/schedules/<name>")
def show(name: str) -> Response:
    """One schedule; where none has the name `load`, the map of coming load."""
    try:
        schedule = read("JobReader.GetSchedule", Schedule, name=name)
    except TobanError as error:
        if name == "load" and error.code is ErrorCode.SCHEDULE_NOT_FOUND:
            return see_other(url_for("load.show"))
        raise
    return page(
        "schedule",
        schedule=schedule,
        coming=if_implemented(lambda: read("JobReader.NextSlots", NextSlots, name=name, count=NEXT_SLOTS)),
        fires=if_implemented(
            lambda: read("JobReader.ListFires", FirePage, schedule=name, page={"limit": LAST_FIRES}).fires
        ),
        definition=indent(schedule.spec),
        runs_from=_runs_from(schedule),
        **_month(schedule),
    )


def _runs_from(schedule: Schedule) -> datetime | None:
    """From when on its slots get runs; None = not at all, as far as is known. Coordinators of an earlier release tell the end of a pause alone."""
    if schedule.next_run_at or not schedule.enabled:
        return schedule.next_run_at
    off = (schedule.status != "active", schedule.paused_until), (schedule.job_disabled, schedule.job_disabled_until)
    ends = [end for is_off, end in off if is_off]
    known = [end for end in ends if end]
    return max(known, default=None) if known == ends else None


def _month(schedule: Schedule) -> dict[str, Any]:
    """The calendar, which is no part of what the page reads again by itself."""
    rule = rule_of(as_object(schedule.spec), schedule.name)
    if wants_part(request.args) or rule is None:
        return {"month": None}
    now = context().clock.wall()
    this_month = now.astimezone(zone_of(rule)).date().replace(day=1)
    first = month_of(request.args.get("month", "")) or this_month
    ledger = None
    if first <= this_month:
        ledger = if_implemented(
            lambda: read("JobReader.ListFires", FirePage, schedule=schedule.name, page={"limit": MONTH_FIRES})
        )
    fires, more = (ledger.fires, bool(ledger.next_cursor)) if ledger else ([], False)
    month = month_calendar(rule, first, now, fires, zone=schedule.timezone, has_more=more)
    return {"month": month, "month_fires": MONTH_FIRES}
