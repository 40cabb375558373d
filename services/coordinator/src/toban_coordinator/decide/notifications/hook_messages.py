"""Messages to hooks: whether they are authentic, and what their event has. The signature is over the bytes of the body as they were received.

Kinds: Standard Webhooks (HMAC over id, time and body), GitHub (HMAC over the body), CloudEvents in structured mode, signed as Standard Webhooks, or
in both modes with a bearer token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from toban_coordinator.decide.notifications.hooks import (
    CLOUDEVENTS,
    CLOUDEVENTS_TOKEN,
    GITHUB,
    HEADER,
    HookMapping,
    check_signed_source,
)
from toban_coordinator.decide.notifications.webhooks import secret_key
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event_filter import MISSING, split_path, value_at
from toban_domain.payload import MAX_NESTING, deeper_than, kind_of

MAX_BODY = 256 * 1024
REPLAY_SECONDS = 300
"""How far the time of a signed message may be off."""
MAX_ID = 120
_STRUCTURED, _BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
_CE = "ce-"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookMessage:
    """As the site received it; header names are in lower case."""

    name: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEvent:
    """What an authentic message says. `id` is that of the sender; `type` "" = none for its value."""

    id: str
    type: str
    payload: dict[str, Any]
    is_ping: bool = False


def is_authentic(kind: str, secrets: Sequence[str], message: HookMessage) -> bool:
    """Whether one of the secrets has signed the message, or is its token. Takes the same steps for each secret."""
    if kind == GITHUB:
        given = [message.headers.get("x-hub-signature-256", "").removeprefix("sha256=")]
        made = [hmac.new(one.encode(), message.body, hashlib.sha256).hexdigest() for one in secrets]
    elif kind == CLOUDEVENTS_TOKEN:
        scheme, _, token = message.headers.get("authorization", "").partition(" ")
        given = [token.strip()] if scheme.lower() == "bearer" else []
        made = list(secrets)
    else:
        signatures = message.headers.get("webhook-signature", "")[:4096].split()
        given = [one.removeprefix("v1,") for one in signatures if one.startswith("v1,")]
        made = [_standard(one, message) for one in secrets]
    found = [hmac.compare_digest(one.encode(), other.encode()) for one in given for other in made]
    return any(found)


def read_message(kind: str, mapping: HookMapping, message: HookMessage, *, now: float) -> HookEvent:
    """What an authentic message says; `now` is in seconds since 1970. Raises INVALID_ARGUMENT and PAYLOAD_INVALID."""
    headers = message.headers
    if kind not in (GITHUB, CLOUDEVENTS_TOKEN):
        _check_time(headers.get("webhook-timestamp", ""), now)
    if kind == GITHUB and headers.get("x-github-event") == "ping":
        return HookEvent(id="", type="", payload={}, is_ping=True)
    # Of a hook that an earlier release stored, too.
    check_signed_source(mapping.type_from, kind)
    payload = _cloud_event(message, kind) if kind in (CLOUDEVENTS, CLOUDEVENTS_TOKEN) else _object(message)
    value = _value(mapping.type_from, headers, payload) if mapping.type_from else ""
    kept = _kept(payload, mapping.fields) if mapping.fields else payload
    return HookEvent(id=_id(kind, headers, payload), type=mapping.type_of(value), payload=kept)


def sign(kind: str, secret: str, body: bytes, *, message_id: str, now: float) -> dict[str, str]:
    """Headers with which a message of this kind is authentic."""
    if kind == GITHUB:
        digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        return {"x-hub-signature-256": f"sha256={digest}", "x-github-delivery": message_id}
    if kind == CLOUDEVENTS_TOKEN:
        return {"authorization": f"Bearer {secret}"}
    headers = {"webhook-id": message_id, "webhook-timestamp": str(int(now))}
    signed = _standard(secret, HookMessage(name="", headers=headers, body=body))
    return {**headers, "webhook-signature": f"v1,{signed}"}


def _standard(secret: str, message: HookMessage) -> str:
    given = f"{message.headers.get('webhook-id', '')}.{message.headers.get('webhook-timestamp', '')}."
    signed = hmac.new(secret_key(secret), given.encode() + message.body, hashlib.sha256)
    return base64.b64encode(signed.digest()).decode()


def _check_time(given: str, now: float) -> None:
    if not given.isascii() or not given.isdecimal() or len(given) > 12:
        raise _invalid("header webhook-timestamp is no number of seconds since 1970")
    off = int(given) - now
    if abs(off) > REPLAY_SECONDS:
        hint = f"it may be {REPLAY_SECONDS} s off; sign each try with its own time, and check the clock of the sender"
        raise _invalid(f"header webhook-timestamp is {abs(off):.0f} s in the {'future' if off > 0 else 'past'}; {hint}")


def _id(kind: str, headers: Mapping[str, str], payload: Mapping[str, Any]) -> str:
    """The id by which a repeated message is recognised. Of CloudEvents with a token, source and id together are unique."""
    if kind == CLOUDEVENTS_TOKEN:
        return _digest(json.dumps([payload["source"], payload["id"]]))
    name = "x-github-delivery" if kind == GITHUB else "webhook-id"
    given = headers.get(name, "")
    if not given:
        raise _invalid(f"header {name} is missing; without an id a repeated message would be a second event")
    return given if len(given) <= MAX_ID and given.isascii() and given.isprintable() else _digest(given)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _object(message: HookMessage) -> dict[str, Any]:
    kind = _content_type(message)
    if kind == "application/x-www-form-urlencoded":
        raise _invalid("the body is a form; choose application/json as the content type of the webhook at its sender")
    value = _json(message.body)
    if not isinstance(value, dict):
        raise TobanError(ErrorCode.PAYLOAD_INVALID, f"the body is {kind_of(value)}; it must be one JSON object")
    return value


def _cloud_event(message: HookMessage, hook_kind: str) -> dict[str, Any]:
    kind = _content_type(message)
    if kind == _BATCH:
        raise _invalid("a batch of CloudEvents is not taken; send one event a request")
    if kind == _STRUCTURED:
        event = _object(message)
    elif hook_kind == CLOUDEVENTS:
        why = "the signature covers id, time and body, and not the headers with the attributes of a CloudEvent in binary mode"
        raise _invalid(f"{why}; send it in structured mode, as {_STRUCTURED}")
    else:
        event = {
            name.removeprefix(_CE): unquote(value) for name, value in message.headers.items() if name.startswith(_CE)
        }
        if message.body and not (kind == "application/json" or kind.endswith("+json")):
            raise _invalid(f"the data of the event is {kind[:80] or 'of no content type'}; only JSON is taken")
        event["data"] = _json(message.body) if message.body else None
    for name in ("id", "source", "type", "specversion"):
        if not isinstance(event.get(name), str) or not event[name]:
            raise _invalid(
                f"the CloudEvent has no {name}; send it as header {_CE}{name}, or in the body as {_STRUCTURED}"
            )
    if event["specversion"] != "1.0":
        raise _invalid(f"the CloudEvent has specversion {event['specversion'][:20]!r}; 1.0 is taken")
    return event


def _content_type(message: HookMessage) -> str:
    return message.headers.get("content-type", "").partition(";")[0].strip().lower()


def _too_deep() -> TobanError:
    return TobanError(ErrorCode.PAYLOAD_INVALID, f"the body is nested more than {MAX_NESTING} levels deep; flatten it")


def _json(body: bytes) -> Any:
    try:
        value = json.loads(body.decode(), parse_constant=_refuse)
    except ValueError:
        raise TobanError(ErrorCode.PAYLOAD_INVALID, "the body is no JSON in UTF-8; send one JSON object") from None
    except RecursionError:
        raise _too_deep() from None
    if deeper_than(value, MAX_NESTING):
        raise _too_deep()
    return value


def _refuse(name: str) -> None:
    raise ValueError(name)


def _value(source: str, headers: Mapping[str, str], payload: Mapping[str, Any]) -> str:
    what, _, where = source.partition(":")
    found = headers.get(where, MISSING) if what == HEADER else value_at(payload, split_path(where))
    if not isinstance(found, str):
        raise _invalid(
            f"the message has no text at {source}, which decides about its event; check the mapping of the hook"
        )
    return found


def _kept(payload: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """The values at these paths at the same places; what is missing is left out, and an item of a list is a key of an object."""
    kept: dict[str, Any] = {}
    for path in fields:
        parts = split_path(path)
        value = value_at(payload, parts)
        if value is MISSING:
            continue
        place = kept
        for part in parts[:-1]:
            inner = place.setdefault(part, {})
            place = inner if isinstance(inner, dict) else {}
        place[parts[-1]] = value
    return kept


def _invalid(message: str) -> TobanError:
    return TobanError(ErrorCode.INVALID_ARGUMENT, message)
