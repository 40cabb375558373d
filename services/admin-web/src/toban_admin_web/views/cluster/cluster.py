"""The cluster page: leader, health, members."""

from __future__ import annotations

from flask import Blueprint, Response

from toban_admin_web.decide.api_models import Cluster
from toban_admin_web.decide.dashboard import leader_status, slot_usage
from toban_admin_web.decide.json_fields import parse_health
from toban_admin_web.views.view_context import page, read

views = Blueprint("cluster", __name__)


@views.get("/cluster")
def show() -> Response:
    """The cluster."""
    cluster = read("JobReader.GetCluster", Cluster)
    status, checks = parse_health(cluster.health)
    return page(
        "cluster",
        cluster=cluster,
        leader=leader_status(cluster),
        status=status,
        checks=checks,
        slots=slot_usage(cluster.executors),
    )
