"""The cluster page: leader, health, running and due work, members."""

from __future__ import annotations

from flask import Blueprint, Response

from toban_admin_web.decide.dashboard import leader_status, next_due, slot_usage
from toban_admin_web.decide.json_fields import parse_health
from toban_admin_web.decide.view_models import RunQuery
from toban_admin_web.views.view_context import page, reader

LAST_RUNS = 12
NEXT_DUE = 8
# The coordinator lists schedules by name, so the next due ones are selected from this many.
SCHEDULES = 500

views = Blueprint("cluster", __name__)


@views.get("/")
def show() -> Response:
    """The cluster."""
    cluster = reader().cluster()
    runs = reader().runs(RunQuery(limit=LAST_RUNS))
    schedules = reader().schedules(limit=SCHEDULES)
    status, checks = parse_health(cluster.health_json)
    return page(
        "cluster",
        cluster=cluster,
        leader=leader_status(cluster),
        runs=runs.items,
        due=next_due(schedules.items, NEXT_DUE),
        more_schedules=bool(schedules.next_cursor),
        schedule_limit=SCHEDULES,
        status=status,
        checks=checks,
        slots=slot_usage(cluster.executors),
    )
