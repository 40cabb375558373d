"""Incoming webhooks: what a hook may be, its secrets, and which values of a message become which events."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toban_coordinator.decide.notifications.webhooks import secret_key, secret_of
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event import check_event
from toban_domain.event_filter import split_path

STANDARD, GITHUB, CLOUDEVENTS, CLOUDEVENTS_TOKEN = "standard", "github", "cloudevents", "cloudevents-token"
KINDS = (STANDARD, GITHUB, CLOUDEVENTS, CLOUDEVENTS_TOKEN)
HEADER, FIELD = "header", "field"
_SOURCE = {GITHUB: f"{HEADER}:x-github-event"}
DEFAULT_SOURCE = f"{FIELD}:type"
MAX_HOOKS = 100
MAX_EVENTS = 100
MAX_VALUE = 200
MAX_FIELDS = 50
DEFAULT_RATE, MAX_RATE = 600, 60_000
KEY_BYTES = 32
MAX_VALID = 2
"""Secrets of a hook that are valid at a time."""
PASSED_PREFIXES = ("x-", "ce-", "webhook-")
"""Headers that the site passes on, beside content type and authorization."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,53}[a-z0-9])?")
_HEADER = re.compile(r"[a-z0-9-]{1,64}")
_TEXT = re.compile(r"[\x21-\x7e]{16,200}")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{32,200}=*")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookMapping:
    """Which event a message becomes: `event_type` for all, or `events` by the value at `type_from`. Of the body `fields` are kept; none = all."""

    event_type: str = ""
    type_from: str = ""
    events: Mapping[str, str] = field(default_factory=dict)
    fields: Sequence[str] = ()

    def type_of(self, value: str) -> str:
        """The type of the event; "" = the message is ignored."""
        return self.event_type or self.events.get(value, "")


def check_name(name: str) -> str:
    """The name. Raises INVALID_ARGUMENT."""
    if not _NAME.fullmatch(name):
        hint = "use 1 to 55 of a-z, 0-9, '.', '_' and '-', with a letter or digit at both ends"
        raise _invalid(f"{name[:80]!r} is not a name of a hook; {hint}")
    return name


def check_kind(kind: str) -> str:
    """The kind of a new hook. Raises INVALID_ARGUMENT."""
    if kind not in KINDS:
        what = f"{kind[:40]!r} is no kind of a hook" if kind else "a new hook needs a kind"
        raise _invalid(f"{what}; use {', '.join(KINDS)}")
    return kind


def check_rate(rate: int) -> int:
    """Messages a minute. Raises INVALID_ARGUMENT."""
    if not 1 <= rate <= MAX_RATE:
        raise _invalid(f"the rate of a hook is {rate} messages a minute; use 1 to {MAX_RATE}")
    return rate


def check_mapping(mapping: HookMapping, kind: str) -> HookMapping:
    """The mapping with the source that it has for this kind. Raises INVALID_ARGUMENT."""
    if bool(mapping.event_type) == bool(mapping.events):
        raise _invalid("give one type for every event, or the values that become events, and not both")
    if mapping.event_type and mapping.type_from:
        raise _invalid("where the type is read from is for a hook without a fixed type; leave one of them out")
    if len(mapping.events) > MAX_EVENTS or len(mapping.fields) > MAX_FIELDS:
        raise _invalid(f"a hook has at most {MAX_EVENTS} values and {MAX_FIELDS} fields; give fewer")
    for event_type in (mapping.event_type, *mapping.events.values()) if mapping.event_type else mapping.events.values():
        check_event(event_type, "")
    for value in mapping.events:
        if not value or len(value) > MAX_VALUE or "\0" in value:
            raise _invalid(f"{value[:40]!r} is no value of a message; use 1 to {MAX_VALUE} characters")
    for path in mapping.fields:
        _check_path(path)
    source = "" if mapping.event_type else mapping.type_from or _SOURCE.get(kind, DEFAULT_SOURCE)
    if source:
        source = _check_source(source)
        check_signed_source(source, kind)
    return HookMapping(
        event_type=mapping.event_type, type_from=source, events=dict(mapping.events), fields=tuple(mapping.fields)
    )


def check_signed_source(source: str, kind: str) -> None:
    """Raises INVALID_ARGUMENT for a header as the source of types where a signature covers the body but not that header."""
    if kind in (STANDARD, CLOUDEVENTS) and source.startswith(f"{HEADER}:"):
        message = f"the signature of a hook of kind {kind} does not cover {source}, so that anyone on the way could choose the event"
        raise _invalid(f"{message}; use field:PATH, a path into the body")


def check_secret(kind: str, secret: str) -> str:
    """A secret that a person gave. Raises INVALID_ARGUMENT, without a byte of it."""
    if kind in (STANDARD, CLOUDEVENTS):
        secret_key(secret)
    elif kind == GITHUB and not _TEXT.fullmatch(secret):
        raise _invalid("the secret of the hook is not valid: it is 16 to 200 printable characters without spaces")
    elif kind == CLOUDEVENTS_TOKEN and not _TOKEN.fullmatch(secret):
        raise _invalid("the token of the hook is not valid: it is 32 to 200 letters, digits and . _ ~ + / -")
    return secret


def make_secret(kind: str, key: bytes) -> str:
    """A secret of some random bytes, in the form of the kind."""
    if kind in (STANDARD, CLOUDEVENTS):
        return secret_of(key)
    return key.hex() if kind == GITHUB else base64.urlsafe_b64encode(key).decode().rstrip("=")


def _check_source(source: str) -> str:
    what, _, where = source.partition(":")
    if what == HEADER:
        name = where.lower()
        if _HEADER.fullmatch(name) and name.startswith(PASSED_PREFIXES):
            return f"{HEADER}:{name}"
        raise _invalid(f"{source[:80]!r} is no header of a message; its name begins with {', '.join(PASSED_PREFIXES)}")
    if what != FIELD:
        raise _invalid(f"{source[:80]!r} is not where a type is read from; write header:NAME or field:PATH")
    _check_path(where)
    return source


def _check_path(path: str) -> None:
    if len(path) > MAX_VALUE or "\0" in path or not split_path(path):
        raise _invalid(f"{path[:80]!r} is no path into the body; write keys joined by dots, such as repository.name")


def _invalid(message: str) -> TobanError:
    return TobanError(ErrorCode.INVALID_ARGUMENT, message)
