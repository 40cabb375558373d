"""Incoming webhooks: POST /hooks/NAME. No session is needed: the coordinators check the signature of the message, over the bytes that came."""

from __future__ import annotations

import json

from flask import Blueprint, Response, request

from toban_admin_web.ports.hooks import Message
from toban_admin_web.views.view_context import context
from toban_domain.client_address import network_of

MAX_BODY_BYTES = 256 * 1024
MAX_NAME = 80
_PREFIXES = ("x-", "ce-", "webhook-")
_NAMES = frozenset({"content-type", "authorization"})
views = Blueprint("hooks", __name__)


@views.post("/hooks/<name>")
def receive(name: str) -> Response:
    """One message. 200 also for one that is ignored or was received before, so that its sender does not try again."""
    address = context().gate.address()
    # Not for each name or each address of a /64: a sender that tries them would have a rate for each.
    context().rate.count(f"hooks {network_of(address)}")
    request.max_content_length = MAX_BODY_BYTES
    message = Message(hook=name[:MAX_NAME], headers=_passed(), body=request.get_data(), address=address)
    done = context().hooks.receive(message)
    answer = {"result": done.result, "event_id": done.event_id or None, "event_type": done.event_type or None}
    return Response(json.dumps(answer), content_type="application/json")


def _passed() -> dict[str, str]:
    """Headers that a signature or a mapping may need: cookies and the like stay here."""
    named = {name.lower(): value for name, value in request.headers.items()}
    return {name: value for name, value in named.items() if name in _NAMES or name.startswith(_PREFIXES)}
