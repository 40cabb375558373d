"""The timeline of runs: which ran when, by executor or by job, with the filters of the list."""

from __future__ import annotations

from datetime import timedelta

from flask import Blueprint, Response, request

from toban_admin_web.decide.api_models import RunPage
from toban_admin_web.decide.filters import parse_filter
from toban_admin_web.decide.status_styles import STATE_GROUPS
from toban_admin_web.decide.timeline import BY, lanes
from toban_admin_web.views.view_context import context, page, read

HOURS = (1, 6, 24)
MOST_RUNS = 200

views = Blueprint("timeline", __name__)


@views.get("/runs/timeline")
def show() -> Response:
    """The newest runs of a span of time that the filters name, or of the last hours."""
    now = context().clock.wall()
    hours = next((one for one in HOURS if request.args.get("hours") == str(one)), HOURS[0])
    by = next((one for one in BY if request.args.get("by") == one), BY[0])
    filters = parse_filter(request.args)
    fields = filters.fields()
    until = fields["active_until"] or now
    since = fields["active_from"] or until - timedelta(hours=hours)
    if since >= until:
        since = until - timedelta(hours=hours)
    runs = read(
        "JobReader.ListRuns",
        RunPage,
        **{**fields, "active_from": since, "active_until": until, "page": {"limit": MOST_RUNS}},
    )
    return page(
        "timeline",
        lanes=lanes(runs.runs, by=by, since=since, until=until, now=now),
        runs=runs,
        filters=filters,
        groups=list(STATE_GROUPS),
        by=by,
        hours=0 if filters.since else hours,
        choices={"by": BY, "hours": HOURS},
        span=(since, since + (until - since) / 2, until),
    )
