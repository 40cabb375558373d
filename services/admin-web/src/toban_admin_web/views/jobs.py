"""Jobs, and one job with its schedules, runs and definition."""

from __future__ import annotations

from flask import Blueprint, Response, request

from toban_admin_web.decide.duration_chart import duration_chart
from toban_admin_web.decide.json_fields import indent
from toban_admin_web.decide.view_models import RunQuery
from toban_admin_web.views.view_context import context, page, reader

LAST_RUNS = 40

views = Blueprint("jobs", __name__)


@views.get("/jobs")
def listed() -> Response:
    """Jobs by name."""
    cursor = request.args.get("cursor", "")
    return page("jobs", jobs=reader().jobs(cursor=cursor), cursor=cursor)


@views.get("/jobs/<name>")
def show(name: str) -> Response:
    """One job."""
    job = reader().job(name)
    runs = reader().runs(RunQuery(job=name, limit=LAST_RUNS))
    chart = duration_chart(runs.items, context().clock.wall())
    return page("job", job=job, runs=runs.items, definition=indent(job.spec_json), chart=chart)
