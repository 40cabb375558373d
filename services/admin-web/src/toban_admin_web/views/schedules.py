"""Schedules, and one schedule with its next and last slots."""

from __future__ import annotations

from flask import Blueprint, Response, request

from toban_admin_web.decide.filters import name_filter
from toban_admin_web.decide.json_fields import indent
from toban_admin_web.views.view_context import if_implemented, page, reader

NEXT_SLOTS = 10
LAST_FIRES = 20

views = Blueprint("schedules", __name__)


@views.get("/schedules")
def listed() -> Response:
    """Schedules by name."""
    cursor = request.args.get("cursor", "")
    name = name_filter(request.args)
    return page("schedules", schedules=reader().schedules(cursor=cursor, name=name), cursor=cursor, name=name)


@views.get("/schedules/<name>")
def show(name: str) -> Response:
    """One schedule."""
    schedule = reader().schedule(name)
    return page(
        "schedule",
        schedule=schedule,
        coming=if_implemented(lambda: reader().next_slots(name, count=NEXT_SLOTS)),
        fires=if_implemented(lambda: reader().fires(name, limit=LAST_FIRES)),
        definition=indent(schedule.spec_json),
    )
