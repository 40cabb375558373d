"""The first page: what needs attention, failures first."""

from __future__ import annotations

from datetime import timedelta

from flask import Blueprint, Response

from toban_admin_web.decide.activity_chart import activity_chart
from toban_admin_web.decide.api_models import Cluster, Overview, RunPage
from toban_admin_web.decide.dashboard import RUNNING, leader_status, slot_usage
from toban_admin_web.decide.json_fields import parse_progress
from toban_admin_web.views.view_context import context, if_implemented, page, read

RUNNING_SHOWN = 10
# A cluster is new below this many runs in all; it is looked at when the last day had few.
NEW_RUNS, FEW_RUNS = 200, 20

views = Blueprint("dashboard", __name__)


@views.get("/")
def show() -> Response:
    """The dashboard."""
    cluster = read("JobReader.GetCluster", Cluster)
    day_ago = context().clock.wall() - timedelta(days=1)
    # Coordinators of the release before have no such method.
    overview = if_implemented(lambda: read("JobReader.GetOverview", Overview))
    running = read("JobReader.ListRuns", RunPage, brief=True, states=RUNNING, page={"limit": RUNNING_SHOWN}).runs
    chart = activity_chart(overview.activity) if overview else None
    return page(
        "dashboard",
        cluster=cluster,
        leader=leader_status(cluster),
        slots=slot_usage(cluster.executors),
        overview=overview,
        chart=chart,
        first_steps=chart is not None and chart.runs <= FEW_RUNS and _is_new(),
        running=[(run, parse_progress(run.progress, run.started_at)) for run in running],
        since=f"{day_ago:%Y-%m-%dT%H:%M}",
    )


def _is_new() -> bool:
    newest = read("JobReader.ListRuns", RunPage, brief=True, page={"limit": 1}).runs
    return not newest or newest[0].id < NEW_RUNS
