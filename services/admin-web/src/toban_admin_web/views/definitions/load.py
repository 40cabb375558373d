"""How many slots come in each minute of the next day, on each day of a month, and in each minute of such a day."""

from __future__ import annotations

from flask import Blueprint, Response, abort, request

from toban_admin_web.decide.api_models import ComingLoad, Schedule, SchedulePage
from toban_admin_web.decide.filters import moment, name_filter
from toban_admin_web.decide.load_map import load_map
from toban_admin_web.decide.load_month import firing, load_month, load_of_day
from toban_admin_web.decide.month_calendar import day_of, month_of
from toban_admin_web.views.view_context import context, if_implemented, page, read

CROWDED = 20
NAMES = 50
# Of the minute that the address names.
ALL_NAMES = 200
# Of a month: so many schedules are read, in pages of the most that one may have.
MOST_SCHEDULES, PAGE = 1000, 500

views = Blueprint("load", __name__)


@views.get("/load")
def show() -> Response:
    """The map, and the most crowded minutes below it."""
    minute = moment(request.args.get("minute", ""))
    load = if_implemented(lambda: read("JobReader.GetComingLoad", ComingLoad, crowded=CROWDED, names=NAMES))
    chosen = (
        read("JobReader.GetComingLoad", ComingLoad, minute=minute, names=ALL_NAMES).crowded
        if minute and load is not None
        else ()
    )
    return page("load", load=load, map=load_map(load) if load else None, minute=minute, chosen=chosen, day=None, of={})


@views.get("/load/month")
def month() -> Response:
    """Slots by day, of the schedules with ?name= in their names; ?month=2026-12."""
    name, now = name_filter(request.args), context().clock.wall()
    first = month_of(request.args.get("month", "")) or now.date().replace(day=1)
    schedules, more = _schedules(name)
    return page("load_month", month=load_month(schedules, first, now), name=name, more=more, most=MOST_SCHEDULES)


@views.get("/load/days/<day>")
def day(day: str) -> Response:
    """The map of a day of UTC, of the same schedules."""
    at = day_of(day)
    if at is None:
        abort(404)
    name, minute = name_filter(request.args), moment(request.args.get("minute", ""))
    schedules, _more = _schedules(name)
    now = context().clock.wall()
    load, chosen = load_of_day(schedules, at, now, crowded=CROWDED, names=NAMES, minute=minute, all_names=ALL_NAMES)
    of = {"day": day, "name": name or None}
    return page("load", load=load, map=load_map(load), minute=minute, chosen=chosen, day=at, of=of)


def _schedules(name: str) -> tuple[list[Schedule], bool]:
    """The first MOST_SCHEDULES by name that fire, and whether there are more."""
    found: list[Schedule] = []
    cursor = ""
    while len(found) < MOST_SCHEDULES:
        answer = read("JobReader.ListSchedules", SchedulePage, name=name, page={"limit": PAGE, "cursor": cursor})
        found += answer.schedules
        cursor = answer.next_cursor
        if not cursor:
            break
    return firing(found), bool(cursor)
