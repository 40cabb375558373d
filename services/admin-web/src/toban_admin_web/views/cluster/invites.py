"""Invites, with which machines join as executors. A token is on the page that answers its form, and nowhere else."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.answer import Done
from toban_admin_web.decide.api_models import ExecutorGroups, ExecutorInvite, ExecutorInvites, NewInvite
from toban_admin_web.views.actions import Refused, confirmed, form, given_reason, require
from toban_admin_web.views.view_context import page, read, write
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.executor_group import DEFAULT_GROUP

MOST_USES, MOST_HOURS = 1000, 168
_HOUR = 3600

views = Blueprint("invites", __name__)


@views.get("/executors/invites")
def listed() -> Response:
    """Invites that are good or ended lately."""
    require(Action.OPERATE)
    return page("invites", invites=_invites())


@views.get("/new/invite")
def ask_add() -> Response:
    """The form of an invite."""
    return _add_form()


@views.post("/new/invite")
def add() -> Response:
    """Makes an invite; its token is on this page only."""
    made: NewInvite | None = None

    def work() -> str:
        nonlocal made
        made = write(
            "Invites.AddInvite",
            NewInvite,
            group=request.form.get("group", ""),
            uses=_number("uses", MOST_USES),
            valid_seconds=_number("hours", MOST_HOURS) * _HOUR,
            reason=given_reason(),
        )
        return url_for("invites.listed")

    response = confirmed(work, lambda status, **why: _add_form(status, **why))
    return form("invite_made", made=made, site=request.url_root.rstrip("/")) if made else response


@views.get("/executors/invites/<id:invite_id>/delete")
def ask_delete(invite_id: int) -> Response:
    """Asks whether an invite is to end."""
    return _delete_form(invite_id)


@views.post("/executors/invites/<id:invite_id>/delete")
def delete(invite_id: int) -> Response:
    """Ends an invite."""

    def work() -> str:
        write("Invites.RemoveInvite", Done, id=invite_id, reason=given_reason())
        return url_for("invites.listed", done="invite_deleted")

    return confirmed(work, lambda status, **why: _delete_form(invite_id, status, **why))


def _number(name: str, most: int) -> int:
    """Raises Refused."""
    text = request.form.get(name, "").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= most):
        raise Refused(f"invite_{name}")
    return int(text)


def _invites() -> list[ExecutorInvite]:
    return read("Invites.ListInvites", ExecutorInvites).invites


def _add_form(status: int = 200, **why: Any) -> Response:
    require(Action.OPERATE)
    defaults = {"group": DEFAULT_GROUP, "uses": "1", "hours": "1"}
    given = {name: request.form.get(name, default) for name, default in defaults.items()}
    groups = [one.name for one in read("Operations.ListExecutorGroups", ExecutorGroups).groups]
    return form("invite_add", status, given=given, groups=groups, most_uses=MOST_USES, most_hours=MOST_HOURS, **why)


def _delete_form(invite_id: int, status: int = 200, **why: Any) -> Response:
    require(Action.OPERATE)
    found = next((one for one in _invites() if one.id == invite_id), None)
    if found is None:
        raise TobanError(ErrorCode.NOT_FOUND, f"there is no invite {invite_id}")
    return form("invite_delete", status, invite=found, **why)
