"""Signing in and out, and the first administrator."""

from __future__ import annotations

from flask import Blueprint, Response, render_template, request, url_for

from toban_admin_web.decide.browser_safety import local_path
from toban_admin_web.decide.problems import status_of
from toban_admin_web.views.people.session_gate import (
    forget_session,
    form_secret,
    keep_form_secret,
    keep_session,
    require_form_token,
    see_other,
    session_secret,
)
from toban_admin_web.views.view_context import context
from toban_domain.errors import ErrorCode, TobanError

TOO_MANY, WRONG, INVALID = 429, 401, 400
# PERMISSION_DENIED: passwords are switched off.
_WRONG_PASSWORD = frozenset({ErrorCode.UNAUTHENTICATED, ErrorCode.RESOURCE_EXHAUSTED, ErrorCode.PERMISSION_DENIED})
_WRONG_FIRST = _WRONG_PASSWORD | {ErrorCode.INVALID_ARGUMENT, ErrorCode.ALREADY_EXISTS}

views = Blueprint("sign_in", __name__)


@views.get("/sign-in")
def ask() -> Response:
    """The form; `next` is where to go on."""
    return _form("sign_in", next=local_path(request.args.get("next", "/")))


@views.post("/sign-in")
def enter() -> Response:
    """A new session, whatever session the browser brings; that one ends."""
    require_form_token(form_secret())
    user, target = request.form.get("user", "").strip(), local_path(request.form.get("next", "/"))
    try:
        secret = _new_session(user)
    except TobanError as error:
        if error.code not in _WRONG_PASSWORD:
            raise
        return _refused("sign_in", error, user=user, next=target)
    return keep_session(see_other(target), secret)


@views.post("/sign-out")
def leave() -> Response:
    """Ends this session, or with `everywhere` all of the person."""
    gate = context().gate
    gate.people.sign_out(session_secret(), everywhere=bool(request.form.get("everywhere")), address=gate.address())
    return forget_session(see_other(url_for("sign_in.ask")))


@views.get("/first")
def first() -> Response:
    """The form for the one-time link. Its secret is behind the # of the address, which browsers do not send."""
    return _form("first")


@views.post("/first")
def make_first() -> Response:
    """The first administrator, signed in."""
    require_form_token(form_secret())
    user, gate = request.form.get("user", "").strip(), context().gate
    link, password = request.form.get("link", "").strip(), request.form.get("password", "")
    if password != request.form.get("again", ""):
        return _form("first", INVALID, user=user, link=link, problem="different")
    try:
        gate.people.make_first(link, user=user, password=password, address=gate.address())
    except TobanError as error:
        if error.code is ErrorCode.RESOURCE_INVALID_STATE:
            # Another one with the link was quicker: there is an administrator now.
            return refused_page(status_of(error), "invalid", message=error.message)
        if error.code not in _WRONG_FIRST:
            raise
        return _refused("first", error, user=user, link=link)
    try:
        return keep_session(see_other(url_for("dashboard.show")), _new_session(user))
    except TobanError as error:
        if error.code not in _WRONG_PASSWORD:
            raise
        return see_other(url_for("sign_in.ask"))


def refused_page(status: int, problem: str, **values: object) -> Response:
    """The page where a person signs in, or the one for the first administrator, with what went wrong."""
    template = "sign_in" if context().gate.people.has_administrator() else "first"
    return _form(template, status, problem=problem, **values)


def _new_session(user: str) -> str:
    gate, before = context().gate, session_secret()
    secret = gate.people.sign_in(
        user,
        request.form.get("password", ""),
        address=gate.address(),
        user_agent=request.headers.get("User-Agent", "")[:200],
    )
    if before:
        gate.people.sign_out(before, everywhere=False, address=gate.address())
    return secret


def _refused(template: str, error: TobanError, **values: str) -> Response:
    seconds = error.detail.get("retry_after_seconds")
    if error.code is ErrorCode.RESOURCE_EXHAUSTED:
        response = _form(template, TOO_MANY, problem="wait", seconds=int(seconds or 1), **values)
        response.headers["Retry-After"] = str(seconds or 1)
        return response
    if error.code is ErrorCode.UNAUTHENTICATED:
        return _form(template, WRONG, problem="wrong", **values)
    return _form(template, INVALID, problem="invalid", message=error.message, **values)


def _form(template: str, status: int = 200, **values: object) -> Response:
    empty = {"user": "", "link": "", "next": "/", "problem": "", "message": "", "seconds": 0}
    ways = context().gate.people.sign_in_ways()
    response = Response(render_template(f"{template}.html", **(empty | values), ways=ways), status)
    return keep_form_secret(response)
