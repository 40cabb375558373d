"""The timeline of runs: which ran when, by executor or by job, with the filters of the list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from flask import Blueprint, Response, request

from toban_admin_web.decide.api_models import Run, RunCounts, RunPage
from toban_admin_web.decide.filters import parse_filter
from toban_admin_web.decide.status_styles import STATE_GROUPS
from toban_admin_web.decide.timeline import BY, lanes
from toban_admin_web.decide.timeline_cells import TONES, cell_picture, count_text
from toban_admin_web.decide.timeline_span import Span, links
from toban_admin_web.views.view_context import context, if_implemented, page, read

HOURS = (1, 6, 24)
# The most runs of which each one is drawn, and listed.
MOST_BARS = 200

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
    wanted = {name: value for name, value in fields.items() if name != "page"}
    wanted |= {"active_from": span.since, "active_until": span.until}
    counts, runs, more = _read(wanted, span, by)
    picture = cell_picture(counts, span) if more and counts else None
    return page(
        "timeline",
        picture=picture,
        lanes=() if more else lanes(runs, by=by, span=span, now=now),
        runs=runs,
        unsupported=more and counts is None,
        most_bars=MOST_BARS,
        tones=TONES,
        count_text=count_text,
        filters=filters,
        groups=list(STATE_GROUPS),
        by=by,
        hours=0 if filters.since else hours,
        choices={"by": BY, "hours": HOURS},
        span=span,
        links=links(span, now),
    )


def _read(wanted: Mapping[str, Any], span: Span, by: str) -> tuple[RunCounts | None, Sequence[Run], bool]:
    """The counts, None of an older coordinator; each run when they are few; whether there are more than these."""
    seconds = int(span.cell.total_seconds())
    counts = if_implemented(
        lambda: read("JobReader.CountRuns", RunCounts, filter=wanted, by=by, interval_seconds=seconds)
    )
    if counts and (counts.since != span.since or sum(sum(one.runs.values()) for one in counts.groups) > MOST_BARS):
        return counts, (), True
    found = read("JobReader.ListRuns", RunPage, brief=True, page={"limit": MOST_BARS}, **wanted)
    return counts, found.runs, bool(found.next_cursor)
