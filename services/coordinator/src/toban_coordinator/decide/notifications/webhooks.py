"""Outgoing webhooks: what a target may be, how a message is signed (Standard Webhooks), what follows a try, and when a breaker opens."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.http_call import parse_url
from toban_domain.mail_target import is_mail, parse_mail
from toban_domain.run import FAILURES
from toban_domain.run_end import RUN_END_STATES

MAX_TARGETS = 100
MAX_FILTER = 100
MAX_URL = 2000
MAX_ERROR = 500
LEASE_SECONDS = 60.0
"""How long a sender has a delivery for itself."""
PARALLEL = 4
"""Deliveries of one target that are under way at a time, so that a slow one leaves senders for the others."""
POLL_SECONDS = 1.0
IDLE_POLL_SECONDS = 10.0
"""How often senders ask, and how often while no target is enabled."""
BACKOFF_SECONDS = (5, 30, 120, 600, 1800, 3600, 7200, 14_400, 28_800, 57_600, 86_400)
"""Before each further try of one delivery; after the last one it has failed."""
MAX_RETRY_AFTER_SECONDS = 3600
BREAKER_FAILURES = 5
"""Failures in a row with which the breaker of a target opens."""
BREAKER_SECONDS, MAX_BREAKER_SECONDS = 30.0, 600.0
NO_STATES = "NONE"
"""In place of states: only what jobs ask for."""
TEST = "webhook.test"
_SECRET_PREFIX = "whsec_"
_SCHEMES = ("https", "http", "smtps", "smtp")
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,53}[a-z0-9])?")


class TryResult(NamedTuple):
    """How a try ended: status 0 = no response; `error` "" = one of 200 to 299. `retry_after` is what the target asks for, seconds.
    `permanent`: the same try would fail again."""

    status: int = 0
    error: str = ""
    retry_after: int = 0
    permanent: bool = False


class AfterTry(NamedTuple):
    """The state of the delivery from then on; `delay_seconds` until its next try, when it is pending."""

    state: str
    delay_seconds: float = 0.0


def after_try(attempts: int, result: TryResult) -> AfterTry:
    """What follows the try that was number `attempts`."""
    if not result.error:
        return AfterTry("delivered")
    if result.permanent or attempts > len(BACKOFF_SECONDS):
        return AfterTry("failed")
    asked = min(max(result.retry_after, 0), MAX_RETRY_AFTER_SECONDS)
    return AfterTry("pending", float(max(BACKOFF_SECONDS[attempts - 1], asked)))


def pause_seconds(failures: int) -> float:
    """How long nothing goes to a target after so many failures in a row; 0 = its breaker stays closed."""
    if failures < BREAKER_FAILURES:
        return 0.0
    return min(MAX_BREAKER_SECONDS, BREAKER_SECONDS * 2.0 ** min(failures - BREAKER_FAILURES, 10))


def poll_seconds(*, any_target: bool, more: bool) -> float:
    """When to ask again. `more`: further deliveries may be due already."""
    return 0.0 if more else POLL_SECONDS if any_target else IDLE_POLL_SECONDS


def signed_headers(secret: str, event_id: UUID, at: datetime, body: bytes) -> dict[str, str]:
    """Headers of Standard Webhooks; the signature is of this try, so receivers can refuse old ones. Without a secret there is none, as chat services
    have it. Raises what `secret_key` raises."""
    message_id, timestamp = f"evt_{event_id.hex}", str(int(at.timestamp()))
    if not secret:
        return {"Content-Type": "application/json", "webhook-id": message_id}
    signed = hmac.new(secret_key(secret), f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(signed.digest()).decode()}",
    }


def run_data(facts: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """What a message has of a run: all that triggers may know of it but payload and result, which may be personal."""
    known = {key: value for key, value in facts.items() if value not in (None, "")}
    return {"run": {**known, "labels": dict(labels)}}


def secret_key(secret: str) -> bytes:
    """The key in `whsec_BASE64`. Raises INVALID_ARGUMENT, without a byte of it."""
    try:
        key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_SECRET_PREFIX) or not 24 <= len(key) <= 64:
        hint = "it is whsec_ and the base64 of 24 to 64 random bytes; leave it out, and one is made"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"the secret of the webhook is not valid: {hint}")
    return key


def secret_of(key: bytes) -> str:
    """`whsec_BASE64` of some random bytes."""
    return _SECRET_PREFIX + base64.b64encode(key).decode()


def check_name(name: str) -> str:
    """The name. Raises INVALID_ARGUMENT."""
    if not _NAME.fullmatch(name):
        hint = "use 1 to 55 of a-z, 0-9, '.', '_' and '-', with a letter or digit at both ends"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{name[:80]!r} is not a name of a webhook; {hint}")
    return name


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL that webhooks may go to. Raises INVALID_ARGUMENT, without the URL: it may hold secrets."""
    if len(url) > MAX_URL:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"the URL has {len(url)} characters, the limit is {MAX_URL}")
    scheme, separator, _ = url.partition("://")
    if not separator or scheme.lower() not in _SCHEMES:
        known = ", ".join(f"{one}://" for one in _SCHEMES)
        message = f"the URL of the webhook begins with none of {known}; write https://HOST/PATH, or smtps://HOST/?from=ADDRESS&to=ADDRESS for mail"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    try:
        if is_mail(url):
            return parse_mail(url).origin
        target = parse_url(url)
    except ValueError as error:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"the URL of the webhook is not valid: {error}") from None
    return f"{target.scheme}://{target.authority}"


def check_states(states: Sequence[str]) -> list[str]:
    """The states in the order of their table, FAILURES for none given; [NO_STATES] are none. Raises INVALID_ARGUMENT."""
    if list(states) == [NO_STATES]:
        return []
    if unknown := sorted({*states} - {*RUN_END_STATES}):
        known = ", ".join(RUN_END_STATES)
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"{', '.join(unknown)} is no state in which a run ends; use {known}"
        )
    return [state for state in RUN_END_STATES if state in (states or FAILURES)]


def check_filter(jobs: Collection[str], labels: Collection[str]) -> None:
    """Raises INVALID_ARGUMENT for more than MAX_FILTER jobs or labels."""
    for what, given in (("jobs", jobs), ("labels", labels)):
        if len(given) > MAX_FILTER:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{len(given)} {what} are given, the limit is {MAX_FILTER}")
