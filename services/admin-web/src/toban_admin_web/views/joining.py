"""Machines that become executors: POST /join. No session is needed: the token of an invite is the authority, which coordinators check."""

from __future__ import annotations

import json
from dataclasses import asdict

from flask import Blueprint, Response, request

from toban_admin_web.ports.joining import Applicant
from toban_admin_web.views.view_context import context
from toban_domain.client_address import network_of
from toban_domain.errors import ErrorCode, TobanError

MAX_BODY_BYTES = 32 * 1024
MAX_TEXT = 20_000
views = Blueprint("joining", __name__)


@views.post("/join")
def join() -> Response:
    """One machine: its certificate, and where coordinators and log-archivers are."""
    address = context().gate.address()
    context().rate.count(f"join {network_of(address)}")
    request.max_content_length = MAX_BODY_BYTES
    given = request.get_json(force=True, silent=True)
    if not isinstance(given, dict) or set(given) - {"token", "request", "machine"}:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "the body is not a JSON object with token, request and machine")
    applicant = Applicant(address=address, **{name: _text(given, name) for name in ("token", "request", "machine")})
    joined = context().joining.join(applicant)
    answer = {**asdict(joined), "ends_at": joined.ends_at.isoformat()}
    return Response(json.dumps(answer), content_type="application/json", headers={"Cache-Control": "no-store"})


def _text(given: dict[str, object], name: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str) or len(value) > MAX_TEXT or not (value or name == "machine"):
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{name} is not a text of 1 to {MAX_TEXT} characters")
    # A request has newlines. Half a surrogate pair is no text either.
    if any(not one.isprintable() and not (one in "\r\n" and name == "request") for one in value):
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{name} has characters that cannot be printed")
    return value
