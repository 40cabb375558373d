"""Jobs, and one job with its schedules, runs and definition."""

from __future__ import annotations

from flask import Blueprint, Response, request

from toban_admin_web.decide import opened
from toban_admin_web.decide.records import RunQuery
from toban_admin_web.views.site import page, reader

LAST_RUNS = 20

views = Blueprint("jobs", __name__)


@views.get("/jobs")
def listed() -> Response:
    """Jobs by name."""
    cursor = request.args.get("cursor", "")
    return page("jobs", found=reader().jobs(cursor=cursor), cursor=cursor)


@views.get("/jobs/<name>")
def show(name: str) -> Response:
    """One job."""
    job = reader().job(name)
    runs = reader().runs(RunQuery(job=name, limit=LAST_RUNS))
    return page("job", job=job, runs=runs, definition=opened.pretty(job.spec_json))
