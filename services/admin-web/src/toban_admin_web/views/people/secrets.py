"""Secrets: names, who may use them and who does. A value goes to the coordinators, and no page, address or log has it."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.access_forms import words
from toban_admin_web.decide.answer import Done
from toban_admin_web.decide.api_models import Secret, Secrets
from toban_admin_web.views.actions import Refused, confirmed, form, given_reason, require
from toban_admin_web.views.people.directory import job_names
from toban_admin_web.views.view_context import page, read, write
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.secret import MAX_VALUE, check_name, check_value

USERS = ("keep", "all", "some")
"""Which jobs may use a secret: as before, every one, or those of a list."""

views = Blueprint("secrets", __name__)


@views.get("/secrets")
def listed() -> Response:
    """All secrets that the person may see."""
    require(Action.EDIT)
    return page("secrets", secrets=_secrets())


@views.get("/new/secret")
def ask_add() -> Response:
    """The form of a new secret."""
    return _set_form("")


@views.post("/new/secret")
def add() -> Response:
    """Stores a secret under a name that is free."""

    def work() -> str:
        require(Action.OPERATE)
        name = check_name(request.form.get("name", "").strip())
        if any(one.name == name for one in _secrets()):
            raise Refused("secret_exists")
        return _store(name)

    return confirmed(work, lambda status, **why: _set_form("", status, **why))


@views.get("/secrets/<name>/set")
def ask_set(name: str) -> Response:
    """The form of a new value."""
    return _set_form(name)


@views.post("/secrets/<name>/set")
def set_value(name: str) -> Response:
    """Stores a new value; it counts from the next attempt of a run on."""
    return confirmed(lambda: _store(name), lambda status, **why: _set_form(name, status, **why))


@views.get("/secrets/<name>/delete")
def ask_delete(name: str) -> Response:
    """Asks whether a secret is to go."""
    return _delete_form(name)


@views.post("/secrets/<name>/delete")
def delete(name: str) -> Response:
    """Removes a secret; while jobs name it only when that was chosen."""

    def work() -> str:
        force = request.form.get("force") == "1"
        write("Operations.RemoveSecret", Done, name=name, force=force, reason=given_reason())
        return url_for("secrets.listed", done="secret_deleted")

    return confirmed(work, lambda status, **why: _delete_form(name, status, **why))


def _store(name: str) -> str:
    require(Action.OPERATE)
    reason, jobs = given_reason(), _given_jobs()
    write("Operations.SetSecret", Secret, name=name, value=_given_value(), reason=reason, **jobs)
    return url_for("secrets.listed", done="secret_set") + f"#{name}"


def _given_jobs() -> dict[str, Any]:
    """Raises Refused."""
    chosen, jobs = request.form.get("for", ""), words(request.form.get("jobs", ""))
    if chosen == "some":
        if not jobs:
            raise Refused("no_jobs")
        return {"jobs": jobs}
    return {"all_jobs": chosen == "all"}


def _given_value() -> bytes:
    """The value as it was typed, or the bytes of the file. Raises Refused, and INVALID_ARGUMENT without a byte of it."""
    typed, sent = request.form.get("value", "").encode(), request.files.get("file")
    stored = sent.stream.read(MAX_VALUE + 1) if sent is not None else b""
    if typed and stored:
        raise Refused("two_values")
    return check_value(typed or stored)


def _secrets() -> list[Secret]:
    return read("Operations.ListSecrets", Secrets).secrets


def _secret(name: str) -> Secret:
    """Raises NOT_FOUND."""
    for one in _secrets():
        if one.name == name:
            return one
    raise TobanError(ErrorCode.NOT_FOUND, f"there is no secret {name!r}")


def _set_form(name: str, status: int = 200, **why: Any) -> Response:
    require(Action.OPERATE)
    secret = _secret(name) if name else None
    given = {field: request.form.get(field, "") for field in ("name", "jobs")}
    offered = USERS if secret else USERS[1:]
    chosen = request.form.get("for", "keep" if secret else "all")
    return form(
        "secret_set", status, secret=secret, given=given, offered=offered, chosen=chosen, jobs=job_names(), **why
    )


def _delete_form(name: str, status: int = 200, **why: Any) -> Response:
    require(Action.OPERATE)
    force = request.form.get("force") == "1"
    return form("secret_delete", status, secret=_secret(name), force=force, **why)
