"""How many slots come in each minute of the next day, and which schedules crowd a minute."""

from __future__ import annotations

from flask import Blueprint, Response, request

from toban_admin_web.decide.api_models import ComingLoad
from toban_admin_web.decide.filters import moment
from toban_admin_web.decide.load_map import load_map
from toban_admin_web.views.view_context import if_implemented, page, read

CROWDED = 20
NAMES = 50
# Of the minute that the address names.
ALL_NAMES = 200

views = Blueprint("load", __name__)


@views.get("/load")
def show() -> Response:
    """The map, and the most crowded minutes below it."""
    minute = moment(request.args.get("minute", ""))
    load = if_implemented(lambda: read("JobReader.GetComingLoad", ComingLoad, crowded=CROWDED, names=NAMES))
    chosen = (
        read("JobReader.GetComingLoad", ComingLoad, minute=minute, names=ALL_NAMES).crowded
        if minute and load is not None
        else ()
    )
    return page("load", load=load, map=load_map(load) if load else None, minute=minute, chosen=chosen)
