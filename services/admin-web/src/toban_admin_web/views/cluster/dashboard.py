"""The first page: what needs attention, failures first."""

from __future__ import annotations

from datetime import timedelta

from flask import Blueprint, Response

from toban_admin_web.decide.api_models import Cluster, Overview, RunPage
from toban_admin_web.decide.dashboard import RUNNING, leader_status, slot_usage
from toban_admin_web.views.view_context import context, if_implemented, page, read

RUNNING_SHOWN = 10

views = Blueprint("dashboard", __name__)


@views.get("/")
def show() -> Response:
    """The dashboard."""
    cluster = read("JobReader.GetCluster", Cluster)
    day_ago = context().clock.wall() - timedelta(days=1)
    return page(
        "dashboard",
        cluster=cluster,
        leader=leader_status(cluster),
        slots=slot_usage(cluster.executors),
        # Coordinators of the release before have no such method.
        overview=if_implemented(lambda: read("JobReader.GetOverview", Overview)),
        running=read("JobReader.ListRuns", RunPage, states=RUNNING, page={"limit": RUNNING_SHOWN}).runs,
        since=f"{day_ago:%Y-%m-%dT%H:%M}",
    )
