"""OpenID Connect: what an ID token must say, who its subject is here, and the nonce of a sign-in. Signatures are verified before."""

from __future__ import annotations

import hmac
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

# Asymmetric ones: who can verify a token cannot make one.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519")
LONGEST_TOKEN = 32 * 1024
LONGEST_SUBJECT = 255
# Between the start of a sign-in and its token.
NONCE_LASTS = timedelta(minutes=10)
# What clocks may differ by.
LEEWAY = timedelta(seconds=30)
_NAMES = ("preferred_username", "email")
_NUMBER = re.compile(r"\d{1,12}")


class ClaimError(ValueError):
    """The token is not good for this sign-in; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who an ID token is of. `groups` as the provider names them; `wish` is a name for a new account."""

    issuer: str
    subject: str
    groups: frozenset[str] = frozenset()
    wish: str = ""
    display_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a token is compared with."""

    issuer: str
    client_id: str
    nonce: str
    groups_claim: str


def identity_of(claims: Mapping[str, Any], expected: Expected, now: datetime) -> Identity:
    """Raises ClaimError for a token of another issuer, audience, sign-in or time."""
    if claims.get("iss") != expected.issuer:
        raise ClaimError("it is of another issuer")
    _check_audience(claims, expected.client_id)
    _check_times(claims, now)
    nonce = claims.get("nonce")
    if not isinstance(nonce, str) or not hmac.compare_digest(_bytes(nonce), _bytes(expected.nonce)):
        raise ClaimError("its nonce is of another sign-in")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 1 <= len(subject) <= LONGEST_SUBJECT or not subject.isprintable():
        raise ClaimError(f"its subject is not 1 to {LONGEST_SUBJECT} printable characters")
    groups = claims.get(expected.groups_claim)
    listed = groups if isinstance(groups, list) else [groups]
    return Identity(
        issuer=expected.issuer,
        subject=subject,
        groups=frozenset(one for one in listed if isinstance(one, str)),
        wish=next((claims[name] for name in _NAMES if isinstance(claims.get(name), str) and claims[name]), ""),
        display_name=_display_name(claims.get("name")),
    )


def account_name(identity: Identity, *, taken: bool) -> str:
    """A name for a new account: the one that the provider suggests, in our characters. With `taken` a part is added that no other account has."""
    wish = re.sub(r"[^a-z0-9._@-]", "-", identity.wish.lower()).lstrip("._@-")
    if wish and not taken:
        return wish[:64]
    mark = sha256(f"{identity.issuer}\n{identity.subject}".encode()).hexdigest()[:8]
    return f"{wish[:55] or 'user'}-{mark}"


def make_nonce(key: bytes, now: datetime, random: str) -> str:
    """Begins with the time; any coordinator that has the key takes it, for NONCE_LASTS."""
    body = f"{int(now.timestamp())}.{random}"
    return f"{body}.{_signature(key, body)}"


def nonce_end(key: bytes, nonce: str, now: datetime) -> datetime:
    """Until when a nonce is good. Raises ClaimError for one that no coordinator made, or that is too old."""
    body, _, signature = nonce.rpartition(".")
    stamp = body.partition(".")[0]
    if not _NUMBER.fullmatch(stamp) or not hmac.compare_digest(_bytes(signature), _signature(key, body).encode()):
        raise ClaimError("its sign-in was not started here")
    made = datetime.fromtimestamp(int(stamp), UTC)
    if not made - LEEWAY <= now < made + NONCE_LASTS:
        raise ClaimError(f"its sign-in was started more than {NONCE_LASTS.seconds // 60} minutes ago")
    return made + NONCE_LASTS


@dataclass(frozen=True, slots=True)
class OidcThrottle:
    """What failures of sign-ins from an address are counted by: apart from wrong passwords, and once the provider's signature is good apart from
    other people there, since an office has one address."""

    network: str

    @property
    def unverified(self) -> str:
        """For tokens that the provider has not signed."""
        return f"OpenID token from address {self.network}"

    def of_person(self, claims: Mapping[str, Any]) -> str:
        """For those that it has signed for one subject."""
        subject = str(claims.get("sub"))
        return f"OpenID sha256:{sha256(subject.encode('utf-8', 'replace')).hexdigest()} from address {self.network}"


def _signature(key: bytes, body: str) -> str:
    return hmac.new(key, b"toban oidc nonce " + _bytes(body), sha256).hexdigest()


def _bytes(text: str) -> bytes:
    """JSON has texts that UTF-8 does not."""
    return text.encode("utf-8", "backslashreplace")


def _check_audience(claims: Mapping[str, Any], client_id: str) -> None:
    audience, party = claims.get("aud"), claims.get("azp")
    listed = audience if isinstance(audience, list) else [audience]
    if client_id not in listed:
        raise ClaimError("it is for another client")
    if (len(listed) > 1 or party is not None) and party != client_id:
        raise ClaimError("it was issued to another client")


def _check_times(claims: Mapping[str, Any], now: datetime) -> None:
    issued, ends, begins = (_time(claims, name) for name in ("iat", "exp", "nbf"))
    if issued is None or ends is None:
        raise ClaimError("it lacks iat or exp")
    seconds, leeway = now.timestamp(), LEEWAY.total_seconds()
    if seconds >= ends + leeway:
        raise ClaimError("it has expired")
    if max(issued, begins or 0) > seconds + leeway:
        raise ClaimError("it is of the future; compare the clocks of the provider and of PostgreSQL")
    if issued < seconds - NONCE_LASTS.total_seconds() - leeway:
        raise ClaimError("it was issued too long ago")


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:
        pass
    raise ClaimError(f"{name} is no time")


def _display_name(value: object) -> str:
    return value[:200] if isinstance(value, str) and value.isprintable() else ""
