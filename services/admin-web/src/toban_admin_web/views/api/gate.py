"""Who makes a request of the API: an API token, or the session of the site with its token against forged requests. Denied otherwise."""

from __future__ import annotations

import re

from flask import request

from toban_admin_web.decide.api_rules import AUTHENTICATE, RouteRule, may_try
from toban_admin_web.decide.browser_safety import is_form_token
from toban_admin_web.ports.people import Credential, SignedIn
from toban_admin_web.views.people.session_gate import SAFE_METHODS, is_own_page, new_form_token, session_secret
from toban_admin_web.views.view_context import context
from toban_domain.access import MINIMUM, TOKEN_PREFIX, Action
from toban_domain.errors import ErrorCode, TobanError

CSRF_HEADER = "X-CSRF-Token"
_PURPOSE = "api"
_TOKEN = re.compile(rf"{TOKEN_PREFIX}[A-Za-z0-9_-]{{16,200}}")


# Whose credential it is, is asked again after this long, seconds. Coordinators decide about each of its calls meanwhile.
REMEMBERED_SECONDS = 2.0


def credential() -> Credential:
    """What the request shows: its API token before the cookie of a session. Raises UNAUTHENTICATED, and RESOURCE_EXHAUSTED for its rate."""
    given = request.headers.get("Authorization", "")
    scheme, _, token = given.partition(" ")
    if given and scheme.lower() != "bearer":
        raise _refused(f"the header Authorization has no API token; send `Authorization: Bearer {TOKEN_PREFIX}...`")
    if given and not _TOKEN.fullmatch(token.strip()):
        # The text may be a secret of another place, and is not shown.
        raise _refused(
            f"the header Authorization has no valid API token: one is {TOKEN_PREFIX} and what follows, as `toban token add` printed it"
        )
    secret = token.strip() if given else session_secret()
    if not secret:
        raise _refused("the request has no API token; send `Authorization: Bearer TOKEN` (`toban token add`)")
    if not given:
        _refuse_forged(secret)
    return Credential(secret, context().gate.address())


def admit(rule: RouteRule, shown: Credential) -> SignedIn:
    """The person of a request. Raises UNAUTHENTICATED, and PERMISSION_DENIED when no rule of theirs can allow this."""
    rate, gate = context().rate, context().gate
    known = rate.admit(shown.secret, shown.address)
    # Where no further call follows, this answer is the only decision.
    person = gate.people.person(shown, max_age=0.0 if rule.method == AUTHENTICATE else REMEMBERED_SECONDS)
    if person is None:
        rate.reject(shown.secret, shown.address, known=known)
        message = "the API token or session is unknown, revoked or has ended; make a new one, or sign in again"
        raise TobanError(ErrorCode.UNAUTHENTICATED, message)
    rate.accept(shown.secret, shown.address, person.user, known=known)
    if not may_try(person.role, rule.needs):
        assert isinstance(rule.needs, Action)
        have = f"role {person.role}" if person.role else "no role"
        message = f"{person.user} has {have}, and this needs {MINIMUM[rule.needs]}; ask an administrator for it"
        raise TobanError(ErrorCode.PERMISSION_DENIED, message, detail={"user": person.user})
    return person


def csrf_token() -> str:
    """What requests of this session that change something carry; "" for a request without a session."""
    secret = session_secret()
    return new_form_token(secret, _PURPOSE) if secret else ""


def _refuse_forged(secret: str) -> None:
    if request.method in SAFE_METHODS:
        return
    if not is_own_page():
        message = (
            "requests that change something come from a page of this site, or have an API token; this one has neither"
        )
        raise TobanError(ErrorCode.PERMISSION_DENIED, message)
    if not is_form_token(request.headers.get(CSRF_HEADER, ""), secret, _PURPOSE):
        message = f"the header {CSRF_HEADER} is not that of this session; GET /api/v1/session has it as `csrf_token`"
        raise TobanError(ErrorCode.PERMISSION_DENIED, message)


def _refused(message: str) -> TobanError:
    # It shows no secret, so it counts for its address.
    context().rate.count(context().gate.address())
    return TobanError(ErrorCode.UNAUTHENTICATED, message)
