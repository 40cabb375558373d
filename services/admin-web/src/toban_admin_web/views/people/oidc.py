"""Signing in with an OpenID provider: to the provider, and back from it."""

from __future__ import annotations

import secrets

from flask import Blueprint, Response, request

from toban_admin_web.decide.browser_safety import cookie_name, local_path
from toban_admin_web.decide.oidc_request import (
    CALLBACK,
    MAX_CODE,
    OIDC,
    SECONDS,
    Pending,
    authorization_url,
    error_name,
    short_path,
    unpack,
)
from toban_admin_web.views.people.session_gate import (
    host_header,
    keep_session,
    see_other,
    session_secret,
    set_cookie,
)
from toban_admin_web.views.people.sign_in import refused_page
from toban_admin_web.views.view_context import context
from toban_domain.errors import ErrorCode, TobanError

# Status and text of the page for what can go wrong.
_PROBLEMS = {
    ErrorCode.UNAUTHENTICATED: (401, "oidc_refused"),
    ErrorCode.PERMISSION_DENIED: (403, "oidc_unknown"),
    ErrorCode.PROVIDER_UNAVAILABLE: (503, "oidc_down"),
    ErrorCode.RESOURCE_INVALID_STATE: (404, "oidc_off"),
    ErrorCode.RESOURCE_EXHAUSTED: (429, "wait"),
}
INVALID, DENIED = 400, 403

views = Blueprint("oidc", __name__)


@views.get("/sign-in/oidc")
def begin() -> Response:
    """To the provider. A link, since browsers follow no redirect of a form to another site here (form-action)."""
    gate = context().gate
    try:
        with context().oidc_limits.step(gate.address()):
            start = gate.people.start_oidc()
    except TobanError as error:
        return _failed(error)
    pending = Pending(secrets.token_urlsafe(48), start.nonce, short_path(local_path(request.args.get("next", "/"))))
    url = authorization_url(
        start.authorization_endpoint,
        pending,
        client_id=start.client_id,
        scope=start.scope,
        host_header=host_header(),
    )
    return set_cookie(see_other(url), OIDC, pending.packed(), max_age=SECONDS)


@views.get(CALLBACK)
def finish() -> Response:
    """Back with a code, in the browser that began: a new session, whatever session it brings; that one ends."""
    given = request.args
    pending = unpack(request.cookies.get(cookie_name(OIDC, host_header()), ""), given.get("state", ""))
    if pending is None:
        response = refused_page(INVALID, "oidc_state")
    elif "error" in given:
        denied = given["error"] == "access_denied"
        name = error_name(given["error"])
        response = refused_page(DENIED if denied else INVALID, "oidc_denied" if denied else "oidc_error", message=name)
    else:
        response = _enter(pending, given.get("code", ""), given.get("iss", ""))
    # Good for one answer of the provider, whatever that was.
    return set_cookie(response, OIDC, "", max_age=0)


def _enter(pending: Pending, code: str, issuer: str) -> Response:
    gate, before = context().gate, session_secret()
    try:
        # Also here: a browser can make a cookie and an answer of the provider that fit each other.
        with context().oidc_limits.step(gate.address()):
            start = gate.people.start_oidc()
            if not 1 <= len(code) <= MAX_CODE or issuer not in ("", start.issuer):
                return refused_page(INVALID, "oidc_state")
            token = context().id_tokens.id_token(start, pending, code, host_header=host_header())
            agent = request.headers.get("User-Agent", "")[:200]
            secret = gate.people.sign_in_with_oidc(token, pending.nonce, address=gate.address(), user_agent=agent)
    except TobanError as error:
        return _failed(error)
    if before:
        gate.people.sign_out(before, everywhere=False, address=gate.address())
    return keep_session(see_other(pending.next), secret)


def _failed(error: TobanError) -> Response:
    if error.code not in _PROBLEMS:
        raise error
    status, problem = _PROBLEMS[error.code]
    if error.detail.get("rate"):
        problem = "oidc_rate"
    seconds = int(error.detail.get("retry_after_seconds") or 1)
    response = refused_page(status, problem, message=error.message, seconds=seconds)
    if status == 429:
        response.headers["Retry-After"] = str(seconds)
    return response
