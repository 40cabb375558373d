"""The timeline of runs: which ran when, by executor or by job, with the filters of the list."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from flask import Blueprint, Response, request

from toban_admin_web.decide.api_models import Run, RunPage
from toban_admin_web.decide.filters import parse_filter
from toban_admin_web.decide.status_styles import STATE_GROUPS
from toban_admin_web.decide.timeline import BY, lanes
from toban_admin_web.decide.timeline_cells import TONES, cell_picture, possible_cuts
from toban_admin_web.decide.timeline_span import Span, links
from toban_admin_web.views.view_context import context, page, read

HOURS = (1, 6, 24)
# The most runs of which each one is drawn, and listed.
MOST_BARS = 200
# Of a call; of all calls: then the older part of the span is not shown.
PAGE_RUNS = 500
MOST_RUNS = 1000
# Of these the times tell where the part that is not known may end.
OLDEST_RUNS = 500

views = Blueprint("timeline", __name__)


@views.get("/runs/timeline")
def show() -> Response:
    """The runs of a span of time that the filters name, or of the last hours: each one, or counted when they are many."""
    now = context().clock.wall()
    hours = next((one for one in HOURS if request.args.get("hours") == str(one)), HOURS[0])
    by = next((one for one in BY if request.args.get("by") == one), BY[0])
    filters = parse_filter(request.args)
    fields = filters.fields()
    until = fields["active_until"] or now
    since = fields["active_from"] or until - timedelta(hours=hours)
    span = Span(since if since < until else until - timedelta(hours=hours), until)
    runs, known = _runs(fields, span, now)
    many = len(runs) > MOST_BARS or known > span.since
    return page(
        "timeline",
        picture=cell_picture(runs, by=by, span=span, known=known, now=now) if many else None,
        lanes=() if many else lanes(runs, by=by, span=span, now=now),
        runs=runs,
        most_bars=MOST_BARS,
        most_runs=MOST_RUNS,
        tones=TONES,
        filters=filters,
        groups=list(STATE_GROUPS),
        by=by,
        hours=0 if filters.since else hours,
        choices={"by": BY, "hours": HOURS},
        span=span,
        links=links(span, now),
    )


def _runs(fields: Mapping[str, Any], span: Span, now: datetime) -> tuple[list[Run], datetime]:
    """The runs of the span, and since when they are all of them: its end when not even that is known."""
    found: list[Run] = []
    cursor = ""
    for _ in range(MOST_RUNS // PAGE_RUNS):
        part = _page(fields, span.since, span, cursor)
        found += part.runs
        cursor = part.next_cursor
        if not cursor:
            return found, span.since
    for cut in possible_cuts(found[-OLDEST_RUNS:], span, now):
        part = _page(fields, cut, span, cursor)
        if not part.next_cursor:
            return found + part.runs, cut
    return found, span.until


def _page(fields: Mapping[str, Any], since: datetime, span: Span, cursor: str) -> RunPage:
    asked = {"active_from": since, "active_until": span.until, "page": {"limit": PAGE_RUNS, "cursor": cursor}}
    return read("JobReader.ListRuns", RunPage, brief=True, **{**fields, **asked})
