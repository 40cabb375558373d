"""The first page: who leads, who is there, what runs, what comes."""

from __future__ import annotations

from flask import Blueprint, Response

from toban_admin_web.decide import opened
from toban_admin_web.decide.overview import leadership, next_due, slots_of
from toban_admin_web.decide.records import RunQuery
from toban_admin_web.views.site import page, reader

LAST_RUNS = 12
NEXT_DUE = 8
# The reader lists schedules by name: this many are looked at for the next ones.
SCHEDULES = 500

views = Blueprint("cluster", __name__)


@views.get("/")
def show() -> Response:
    """The cluster."""
    cluster = reader().cluster()
    runs = reader().runs(RunQuery(limit=LAST_RUNS))
    schedules = reader().schedules(limit=SCHEDULES)
    status, checks = opened.health(cluster.health_json)
    return page(
        "cluster",
        cluster=cluster,
        leader=leadership(cluster),
        runs=runs.items,
        due=next_due(schedules.items, NEXT_DUE),
        more_schedules=bool(schedules.next_cursor),
        schedules_seen=SCHEDULES,
        status=status,
        checks=checks,
        slots=slots_of(cluster.executors),
    )
