"""Limits: how they are used, what waits for them and why, and what operators do about it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, Response, abort, request, url_for

from toban_admin_web.decide.api_models import ChangedLimit, Limit, LimitDetails, Limits
from toban_admin_web.decide.limit_state import LEVELS, actions, kind_of, why_waits
from toban_admin_web.views.actions import Refused, confirmed, form, given_reason, require
from toban_admin_web.views.view_context import page, read, write
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError

NEEDS = {"signal": Action.RUN}
"""What an action needs beside OPERATE, that of the others."""
DONE = {
    "set": "limit_set",
    "reset": "limit_reset",
    "open": "breaker_opened",
    "close": "breaker_closed",
    "signal": "signaled",
}
WITH_VALUE = ("set", "reset")
DEFAULT_SIGNAL_SECONDS = "300"
_WHOLE = re.compile(r"-?[0-9]{1,9}", re.ASCII)
_NEVER = datetime.max.replace(tzinfo=UTC)

views = Blueprint("limits", __name__)


@views.get("/limits")
def listed() -> Response:
    """All limits, and before them those that runs wait for, the longest wait first."""
    limits = read("Operations.ListLimits", Limits).limits
    waiting = sorted((one for one in limits if one.waiting), key=lambda one: one.waiting_since or _NEVER)
    return page("limits", limits=limits, waiting=waiting, why_waits=why_waits)


@views.get("/limits/one")
def show() -> Response:
    """One limit with the runs that hold it, and those that wait for it. Its name may have slashes, so it is in the query."""
    details = read("Operations.GetLimit", LimitDetails, name=_name())
    if details.limit is None:
        raise TobanError(ErrorCode.NOT_FOUND, f"there is no limit {_name()!r}")
    return page(
        "limit",
        limit=details.limit,
        details=details,
        kind=kind_of(details.limit.name),
        offered=actions(details.limit),
        why=why_waits(details.limit),
    )


@views.get("/limits/<any(set, reset, open, close, signal):verb>")
def ask(verb: str) -> Response:
    """The form of an action."""
    return _form(verb)


@views.post("/limits/<any(set, reset, open, close, signal):verb>")
def act(verb: str) -> Response:
    """Changes the limit; the leader works with it at once."""

    def work() -> str:
        method, fields = _call(verb)
        require(NEEDS.get(verb, Action.OPERATE))
        before = _found(_name()) if verb in WITH_VALUE else None
        changed = write(method, ChangedLimit, name=_name(), reason=given_reason(), **fields)
        # A pool or scope that was reset is no more.
        gone = verb == "reset" and not changed.limit.effective
        # What an undo sets; one that no operator had set is reset.
        was = before.limit if before and before.source == "operator" else None
        if gone:
            return url_for("limits.listed", done=DONE[verb], of=_name(), was=was)
        return url_for("limits.show", name=_name(), done=DONE[verb], was=was)

    return confirmed(work, lambda status, **why: _form(verb, status, **why))


def _call(verb: str) -> tuple[str, dict[str, Any]]:
    if verb == "set":
        return "Operations.SetLimit", {"limit": _number("value")}
    if verb == "reset":
        return "Operations.SetLimit", {"reset": True}
    if verb == "signal":
        given = {"level": request.form.get("level", ""), "ttl_seconds": _number("seconds")}
        return "Operations.SignalLimit", given
    return "Operations.SetBreaker", {"open": verb == "open"}


def _form(verb: str, status: int = 200, **why: Any) -> Response:
    require(NEEDS.get(verb, Action.OPERATE))
    limit = _found(_name())
    if limit is None and verb != "set":
        raise TobanError(ErrorCode.NOT_FOUND, f"there is no limit {_name()!r}")
    values = {
        "value": request.values.get("value", str(limit.limit) if limit else ""),
        "level": request.form.get("level", LEVELS[0]),
        "seconds": request.form.get("seconds", DEFAULT_SIGNAL_SECONDS),
    }
    return form("limit_action", status, verb=verb, limit=limit, name=_name(), levels=LEVELS, **values, **why)


def _found(name: str) -> Limit | None:
    """None for a limit that is not set yet."""
    try:
        return read("Operations.GetLimit", LimitDetails, name=name).limit
    except TobanError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        return None


def _name() -> str:
    """The limit in the query; a request without one is none of the site's."""
    name = request.args.get("name", "").strip()
    if not name:
        abort(400)
    return name


def _number(field: str) -> int:
    """A whole number of the form. Raises Refused."""
    text = request.form.get(field, "").strip()
    if not _WHOLE.fullmatch(text):
        raise Refused("invalid_number")
    return int(text)
