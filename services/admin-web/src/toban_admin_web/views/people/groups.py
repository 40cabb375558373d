"""Groups of people with common rules: members, rules, and what administrators change."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.answer import Done
from toban_admin_web.views.actions import Refused, confirmed, form, given_reason
from toban_admin_web.views.people import directory
from toban_admin_web.views.view_context import page, write

DONE = {"join": "member_joined", "leave": "member_left", "delete": "group_deleted"}
"""What each action reports."""

views = Blueprint("groups", __name__)


@views.get("/groups")
def listed() -> Response:
    """All groups, with members and the number of rules."""
    directory.require_accounts()
    counts = Counter(one.group for one in directory.rules() if one.group)
    return page("groups", groups=directory.groups(), counts=counts)


@views.get("/groups/<name>")
def show(name: str) -> Response:
    """One group."""
    directory.require_accounts()
    return page("group", group=directory.group_of(name), rules=directory.rules(group=name))


@views.get("/new/group")
def ask_add() -> Response:
    """The form of a new group."""
    return _add_form()


@views.post("/new/group")
def add() -> Response:
    """Makes a group without members and rules."""

    def work() -> str:
        name = request.form.get("name", "").strip()
        write("Accounts.UpdateGroup", Done, name=name, change="add", reason=given_reason())
        return url_for("groups.show", name=name, done="group_added")

    return confirmed(work, _add_form)


@views.get("/groups/<name>/<any(join, leave, delete):verb>")
def ask(name: str, verb: str) -> Response:
    """The form of an action; `?user=` fills in whom it is about."""
    return _form(name, verb)


@views.post("/groups/<name>/<any(join, leave, delete):verb>")
def act(name: str, verb: str) -> Response:
    """Changes the group."""

    def work() -> str:
        user = "" if verb == "delete" else request.form.get("user", "").strip()
        if verb != "delete" and not user:
            raise Refused("no_user")
        write("Accounts.UpdateGroup", Done, name=name, change=verb, user=user, reason=given_reason())
        if verb == "delete":
            return url_for("groups.listed", done=DONE[verb])
        return url_for("groups.show", name=name, done=DONE[verb])

    return confirmed(work, lambda status, **why: _form(name, verb, status, **why))


def _add_form(status: int = 200, **why: Any) -> Response:
    directory.require_accounts()
    return form("group_add", status, name=request.form.get("name", ""), **why)


def _form(name: str, verb: str, status: int = 200, **why: Any) -> Response:
    directory.require_accounts()
    user = request.form.get("user", request.args.get("user", ""))
    proposed = directory.user_names() if verb == "join" else []
    group = directory.group_of(name)
    return form("group_action", status, group=group, verb=verb, user=user, proposed=proposed, **why)
