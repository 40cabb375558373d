"""Accounts: who has one, with which role, and what administrators do with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.access_forms import numbers, offered, whole_grants
from toban_admin_web.decide.answer import Done
from toban_admin_web.decide.api_models import AccessRule, Created, Ended, UserPage
from toban_admin_web.views.actions import Refused, confirmed, form, given_reason
from toban_admin_web.views.people import directory
from toban_admin_web.views.view_context import page, read, write
from toban_domain.access import Role
from toban_domain.errors import TobanError

DONE = {
    "join": "member_joined",
    "password": "password_set",
    "link": "user_linked",
    "unlink": "user_unlinked",
    "end-sessions": "sessions_ended",
    "disable": "user_disabled",
    "enable": "user_enabled",
    "delete": "user_deleted",
}
"""What each action reports."""
_ROUTE = f"/users/<name>/<any({', '.join(map(repr, DONE))}):verb>"

views = Blueprint("users", __name__)


@views.get("/users")
def listed() -> Response:
    """Accounts by name."""
    directory.require_accounts()
    cursor = request.args.get("cursor", "")[:300]
    found = read("Accounts.ListUsers", UserPage, page={"limit": 50, "cursor": cursor})
    return page("users", found=found, cursor=cursor)


@views.get("/users/<name>")
def show(name: str) -> Response:
    """One account with its groups and rules."""
    directory.require_accounts()
    user = directory.user_of(name)
    found = directory.rules()
    applying = [one for one in found if one.user == name or one.group in user.groups]
    return page("user", user=user, rules=applying, offered=offered(user))


@views.get("/new/user")
def ask_add() -> Response:
    """The form of a new account."""
    return _add_form()


@views.post("/new/user")
def add() -> Response:
    """Makes an account, and gives it a role when one is chosen."""

    def work() -> str:
        name, role, reason = request.form.get("name", "").strip(), _given_role(), given_reason()
        shown = request.form.get("display_name", "").strip()
        write(
            "Accounts.AddUser", Done, name=name, display_name=shown, password=_given_password(must=False), reason=reason
        )
        if role:
            _give(name, role, reason)
        return url_for("users.show", name=name, done="user_added")

    return confirmed(work, _add_form)


@views.get("/users/<name>/role")
def ask_role(name: str) -> Response:
    """The form of another role for everything."""
    return _role_form(name)


@views.post("/users/<name>/role")
def change_role(name: str) -> Response:
    """Another rule in the place of those that give the account a role for everything, if they are still those that the page showed."""
    changed = False

    def work() -> str:
        nonlocal changed
        role, reason = _given_role(), given_reason()
        directory.require_accounts()
        old = whole_grants(name, directory.rules(user=name))
        if numbers(old) != request.form.get("rules", ""):
            changed = True
            raise Refused("rules_changed")
        _replace(name, role, old, reason)
        return url_for("users.show", name=name, done="role_changed")

    def refused(status: int, **why: Any) -> Response:
        return _role_form(name, status, seen=None if changed else request.form.get("rules", ""), **why)

    return confirmed(work, refused)


@views.get(_ROUTE)
def ask(name: str, verb: str) -> Response:
    """The form of an action."""
    return _form(name, verb)


@views.post(_ROUTE)
def act(name: str, verb: str) -> Response:
    """Changes the account."""

    def work() -> str:
        method, fields = _call(name, verb)
        write(method, Ended if verb == "end-sessions" else Done, reason=given_reason(), **fields)
        if verb == "delete":
            return url_for("users.listed", done=DONE[verb])
        return url_for("users.show", name=name, done=DONE[verb])

    return confirmed(work, lambda status, **why: _form(name, verb, status, **why))


def _call(name: str, verb: str) -> tuple[str, dict[str, Any]]:
    """The method of an action and the fields of its form. Raises Refused."""
    if verb == "join":
        group = request.form.get("group", "")
        if not group:
            raise Refused("no_group")
        return "Accounts.UpdateGroup", {"name": group, "change": "join", "user": name}
    if verb == "password":
        return "Accounts.UpdateUser", {"name": name, "password": _given_password()}
    if verb in ("disable", "enable"):
        return "Accounts.UpdateUser", {"name": name, "enabled": verb == "enable"}
    if verb == "link":
        return "Accounts.LinkUser", {"name": name, "subject": request.form.get("subject", "").strip()}
    if verb == "unlink":
        return "Accounts.UnlinkUser", {"name": name, "issuer": request.form.get("issuer", "")}
    if verb == "end-sessions":
        return "Accounts.EndSessions", {"user": name}
    return "Accounts.DeleteUser", {"name": name}


def _replace(name: str, role: str, old: Sequence[AccessRule], reason: str) -> None:
    """The new rule is made first, and removed again when an old one must stay: an account is never left without both."""
    going = [one for one in old if one.role != role]
    made = _give(name, role, reason) if role and len(going) == len(old) else 0
    try:
        for one in going:
            write("Accounts.RemoveRule", Done, id=one.id, reason=reason)
    except TobanError:
        if made:
            with suppress(TobanError):
                write("Accounts.RemoveRule", Done, id=made, reason=reason)
        raise


def _give(name: str, role: str, reason: str) -> int:
    rule = {"user": name, "effect": "allow", "role": role}
    return write("Accounts.AddRule", Created, rule=rule, reason=reason).id


def _given_role() -> str:
    """A role, "" for none. Raises Refused."""
    role = request.form.get("role", "")
    if role and role not in set(Role):
        raise Refused("unknown_role")
    return role


def _given_password(*, must: bool = True) -> str:
    """The password, which is asked for twice. Raises Refused."""
    password = request.form.get("password", "")
    if password != request.form.get("again", ""):
        raise Refused("passwords_differ")
    if must and not password:
        raise Refused("no_password")
    return password


def _add_form(status: int = 200, **why: Any) -> Response:
    directory.require_accounts()
    return form("user_add", status, given=request.form, roles=tuple(Role), **why)


def _role_form(name: str, status: int = 200, seen: str | None = None, **why: Any) -> Response:
    directory.require_accounts()
    user, old = directory.user_of(name), whole_grants(name, directory.rules(user=name))
    present = max((Role(one.role).rank, one.role) for one in old)[1] if old else ""
    return form(
        "user_role",
        status,
        user=user,
        old=old,
        seen=numbers(old) if seen is None else seen,
        role=request.form.get("role", present),
        roles=("", *Role),
        **why,
    )


def _form(name: str, verb: str, status: int = 200, **why: Any) -> Response:
    directory.require_accounts()
    user = directory.user_of(name)
    others = [one.name for one in directory.groups() if name not in one.members] if verb == "join" else []
    given = {field: request.form.get(field, "") for field in ("subject", "group")}
    return form("user_action", status, user=user, verb=verb, given=given, others=others, **why)
