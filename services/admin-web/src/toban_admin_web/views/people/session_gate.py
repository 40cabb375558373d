"""Before every view: who asks. Without a session only the sign-in page, and before the first administrator only the page for the one-time link."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flask import Flask, Response, abort, g, make_response, redirect, request, url_for

from toban_admin_web.decide.api_models import Schedule
from toban_admin_web.decide.api_rules import is_for_programs, may_offer, may_offer_somewhere
from toban_admin_web.decide.browser_safety import (
    FORM,
    SESSION,
    client_address,
    cookie_name,
    form_token,
    is_form_token,
    is_plain,
    is_same_origin,
    local_path,
)
from toban_admin_web.decide.filters import wants_part
from toban_admin_web.decide.json_fields import as_object
from toban_admin_web.ports.people import Credential, People
from toban_domain.access import Action, Target

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
FIRST = frozenset({"sign_in.first", "sign_in.make_first"})
# A person of the provider can be the first administrator, too.
OIDC_VIEWS = frozenset({"oidc.begin", "oidc.finish"})
OPEN = FIRST | {"sign_in.ask", "sign_in.enter"}
FORBIDDEN, UNAUTHENTICATED, SEE_OTHER = 403, 401, 303
FORM_SECONDS = 3600
PART_SECONDS = 5.0
_SECRET = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionGate:
    """Admits the requests of one application. `proxies`: how many proxies of ours add to X-Forwarded-For."""

    people: People
    proxies: int

    def install(self, app: Flask) -> None:
        """Registers the checks at `app`, after those of hosts and methods."""
        app.before_request(self._admit)
        app.context_processor(_template_values)

    def address(self) -> str:
        """Where the person of this request is, as far as the site knows."""
        forwarded = ",".join(request.headers.getlist("X-Forwarded-For"))
        return client_address(request.remote_addr or "", forwarded, proxies=self.proxies)

    def _admit(self) -> Response | None:
        # The API has a gate of its own (api/gate.py), which every route of it passes; messages to hooks are signed.
        if request.endpoint == "static" or is_for_programs(request.path):
            return None
        writes = request.method not in SAFE_METHODS
        if writes and not is_own_page():
            g.problem = "origin"
            abort(FORBIDDEN)
        if request.endpoint in OIDC_VIEWS:
            return None
        if not self.people.has_administrator():
            return None if request.endpoint in FIRST else _send_to(url_for("sign_in.first"))
        if request.endpoint in FIRST:
            return _send_to(url_for("sign_in.ask"))
        if request.endpoint in OPEN:
            return None
        g.credential = Credential(session_secret(), self.address())
        # The parts of open pages are asked for again and again.
        max_age = PART_SECONDS if wants_part(request.args) else 0.0
        g.person = self.people.person(g.credential, max_age=max_age) if g.credential.secret else None
        if g.person is None:
            return _send_to(url_for("sign_in.ask", next=_here()))
        if writes:
            require_form_token(g.credential.secret)
        return None


def session_secret() -> str:
    """The session of this request; "" without one."""
    return _cookie(SESSION)


def form_secret() -> str:
    """What ties the forms of a browser that has not signed in to it; made at the first use, and set by `keep_form_secret`."""
    if "form_secret" not in g:
        g.form_secret = _cookie(FORM) or secrets.token_hex(32)
    return str(g.form_secret)


def keep_form_secret(response: Response) -> Response:
    """Sets the cookie of `form_secret`."""
    return set_cookie(response, FORM, form_secret(), max_age=FORM_SECONDS)


def keep_session(response: Response, secret: str) -> Response:
    """Sets the cookie of a new session; it ends with the browser, or on the server."""
    return set_cookie(response, SESSION, secret, max_age=None)


def forget_session(response: Response) -> Response:
    """Removes the cookie of the session."""
    return set_cookie(response, SESSION, "", max_age=0)


def new_form_token(secret: str, purpose: str) -> str:
    """A token for the answer to this request, which is not compressed then."""
    g.has_token = True
    return form_token(secret, purpose)


def require_form_token(secret: str) -> None:
    """Refuses a form that the site did not make for this cookie."""
    if not is_form_token(request.form.get("csrf", ""), secret, request.endpoint or ""):
        g.problem = "form"
        abort(FORBIDDEN)


def may(
    action: str, job: str = "", labels: Mapping[str, str] | None = None, *, scope: str = "system", scope_id: str = ""
) -> bool:
    """Whether a page offers an action to the person of this request; without a job, one of any job. `labels`: of the job, where they are known."""
    person = g.get("person")
    if person is None:
        return False
    target = Target(job=job, labels=labels or {}, scope=scope or "system", scope_id=scope_id) if job else None
    return may_offer(person.role, person.rules, Action(action), target, labelled=labels is not None)


def _may_edit(schedule: Schedule) -> bool:
    spec = as_object(schedule.spec)
    scope, scope_id = str(spec.get("scope", "")), str(spec.get("scope_id", ""))
    return may(Action.EDIT, schedule.job, scope=scope, scope_id=scope_id)


def _may_schedule(job: str, labels: Mapping[str, str]) -> bool:
    """Whether a page offers a new schedule of a job. Its scope is chosen later."""
    person = g.person
    return may_offer_somewhere(person.role, person.rules, Action.EDIT, Target(job=job, labels=labels))


def see_other(path: str) -> Response:
    """A redirect that is read with GET."""
    return make_response(redirect(path, SEE_OTHER))


def _template_values() -> dict[str, Any]:
    def csrf(endpoint: str) -> str:
        return new_form_token(session_secret() if g.get("person") else form_secret(), endpoint)

    return {"person": g.get("person"), "csrf": csrf, "may": may, "may_edit": _may_edit, "may_schedule": _may_schedule}


def _send_to(path: str) -> Response:
    """Pages go on to `path`; scripts, streams and forms get 401."""
    wants_page = request.method in SAFE_METHODS and not wants_part(request.args)
    if wants_page and request.accept_mimetypes.best != "text/event-stream":
        return see_other(path)
    response = make_response("sign in\n", UNAUTHENTICATED)
    response.content_type = "text/plain; charset=utf-8"
    return response


def _here() -> str:
    query = request.query_string.decode("ascii", "replace")
    return local_path(f"{request.path}?{query}" if query else request.path)


def is_own_page() -> bool:
    """Whether a request that writes comes from a page of the site."""
    headers = request.headers
    origin, fetch_site = headers.get("Origin", ""), headers.get("Sec-Fetch-Site", "")
    return is_same_origin(origin=origin, fetch_site=fetch_site, host_header=host_header())


def host_header() -> str:
    """The name and port under which the site was asked; one that is allowed."""
    return str(request.environ.get("HTTP_HOST", ""))


def _cookie(kind: str) -> str:
    value = request.cookies.get(cookie_name(kind, host_header()), "")
    return value if _SECRET.fullmatch(value) else ""


def set_cookie(response: Response, kind: str, value: str, *, max_age: int | None) -> Response:
    """A cookie of this very host that scripts do not see; `max_age` None = until the browser ends."""
    response.set_cookie(
        cookie_name(kind, host_header()),
        value,
        max_age=max_age,
        path="/",
        secure=not is_plain(host_header()),
        httponly=True,
        samesite="Lax",
    )
    return response
