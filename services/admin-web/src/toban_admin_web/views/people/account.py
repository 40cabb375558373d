"""The account of the person: password, sessions, API tokens."""

from __future__ import annotations

from flask import Blueprint, Response, g, request, url_for

from toban_admin_web.decide.answer import Done
from toban_admin_web.decide.api_models import NewToken, Tokens, UserSessions
from toban_admin_web.decide.problems import status_of
from toban_admin_web.views.people.session_gate import forget_session, keep_session, see_other
from toban_admin_web.views.view_context import context, page, read, write
from toban_domain.access import WORKER
from toban_domain.errors import ErrorCode, TobanError

ROLES = ("viewer", "operator", "editor", "admin")
DAYS = 90
# What the page shows beside the form; other errors have a page of their own.
_SHOWN = frozenset(
    {
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.PERMISSION_DENIED,
        ErrorCode.NOT_FOUND,
        ErrorCode.CONFLICT,
        ErrorCode.RESOURCE_INVALID_STATE,
        ErrorCode.RESOURCE_EXHAUSTED,
    }
)
INVALID = 400

views = Blueprint("account", __name__)


@views.get("/account")
def show() -> Response:
    """Who is signed in, with sessions and tokens, and the ways out."""
    return _page(done=request.args.get("done", ""))


@views.post("/account/password")
def change_password() -> Response:
    """Another password. Every session ends; this browser gets a new one."""
    password = request.form.get("password", "")
    if password != request.form.get("again", ""):
        return _page(INVALID, problem="different")
    try:
        write("Accounts.ChangeOwnPassword", Done, current=request.form.get("current", ""), password=password)
    except TobanError as error:
        if error.code is ErrorCode.UNAUTHENTICATED and not error.detail.get("sign_in"):
            return _page(INVALID, problem="current")
        return _refused(error)
    agent, gate = request.headers.get("User-Agent", "")[:200], context().gate
    try:
        secret = gate.people.sign_in(g.person.user, password, address=gate.address(), user_agent=agent)
    except TobanError:
        # The password is changed; the person signs in with it.
        return forget_session(see_other(url_for("sign_in.ask")))
    return keep_session(see_other(url_for("account.show", done="password")), secret)


@views.post("/account/sessions/<id:session_id>/end")
def end_session(session_id: int) -> Response:
    """One session less."""
    try:
        write("Accounts.EndOwnSession", Done, id=session_id)
    except TobanError as error:
        return _refused(error)
    return see_other(url_for("account.show", done="session"))


@views.post("/account/tokens")
def create_token() -> Response:
    """A token; its secret is on this page only."""
    days = request.form.get("days", "")
    worker_type = request.form.get("worker_type", "").strip()
    selector = {
        "job": request.form.get("job", "").strip(),
        "scope": WORKER if worker_type else "",
        "scope_id": worker_type,
    }
    token = {
        "name": request.form.get("name", "").strip(),
        "role": request.form.get("role", ""),
        "selector": selector,
        "days": int(days) if days.isascii() and days.isdigit() and len(days) < 5 else 0,
    }
    try:
        secret = write("Accounts.CreateOwnToken", NewToken, **token).secret
    except TobanError as error:
        return _refused(error)
    return _page(secret=secret)


@views.post("/account/tokens/<id:token_id>/revoke")
def revoke_token(token_id: int) -> Response:
    """A token less."""
    try:
        write("Accounts.RevokeOwnToken", Done, id=token_id)
    except TobanError as error:
        return _refused(error)
    return see_other(url_for("account.show", done="token"))


def _refused(error: TobanError) -> Response:
    if error.code not in _SHOWN:
        raise error
    status = status_of(error)
    seconds = error.detail.get("retry_after_seconds")
    if seconds:
        response = _page(status, problem="wait", seconds=int(seconds))
        response.headers["Retry-After"] = str(seconds)
        return response
    return _page(status, problem="invalid", message=error.message)


def _page(status: int = 200, **values: object) -> Response:
    now = context().clock.wall()
    tokens = read("Accounts.ListOwnTokens", Tokens).tokens
    empty = {"problem": "", "message": "", "seconds": 0, "secret": "", "done": ""}
    response = page(
        "account",
        sessions=read("Accounts.ListOwnSessions", UserSessions).sessions,
        tokens=[one for one in tokens if not one.revoked and (one.ends_at or now) > now],
        roles=ROLES[: ROLES.index(g.person.role) + 1] if g.person.role else (),
        days=DAYS,
        **(empty | values),
    )
    response.status_code = status
    return response
