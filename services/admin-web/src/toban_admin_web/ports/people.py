"""What the site asks coordinators about people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from toban_admin_web.decide.oidc_request import Pending
from toban_domain.access import Rule


@dataclass(frozen=True, slots=True)
class Credential:
    """The session or API token of a request, which goes with each call for it, and where its person is."""

    secret: str = field(repr=False)
    address: str


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A person. `role` is the highest of any rule of theirs; "" without one."""

    user: str
    role: str
    worker_type: str = ""
    """Of a token: the one type of external steps that it is for; "" = it is no token of an external worker."""
    access: str = ""
    """Equal for people who may do and see the same; "" = not known."""
    rules: tuple[Rule, ...] = ()
    """Of a session, what decides about its person; empty = not known."""


@dataclass(frozen=True, slots=True)
class SignInWays:
    """How people sign in: with a password, with an OpenID provider of this name ("" = none), or both."""

    passwords: bool
    provider: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcStart:
    """What a sign-in with the provider needs. The nonce is good for one."""

    authorization_endpoint: str
    token_endpoint: str
    client_id: str
    scope: str
    nonce: str
    secret_in_body: bool
    issuer: str


class People(Protocol):
    """Accounts. Every call raises TobanError UNAVAILABLE or DEADLINE_EXCEEDED when no coordinator answers."""

    def has_administrator(self) -> bool:
        """Whether there is an administrator who can sign in."""

    def sign_in_ways(self) -> SignInWays:
        """What the sign-in page offers."""

    def start_oidc(self) -> OidcStart:
        """Raises RESOURCE_INVALID_STATE without a provider, PROVIDER_UNAVAILABLE."""

    def sign_in_with_oidc(self, id_token: str, nonce: str, *, address: str, user_agent: str) -> str:
        """The secret of a new session. Raises UNAUTHENTICATED, PERMISSION_DENIED, PROVIDER_UNAVAILABLE, RESOURCE_EXHAUSTED."""

    def person(self, credential: Credential, *, max_age: float = 0.0) -> SignedIn | None:
        """Whose session or token it is, as it was at most `max_age` seconds ago; None when it is no longer valid."""

    def sign_in(self, user: str, password: str, *, address: str, user_agent: str) -> str:
        """The secret of a new session. Raises UNAUTHENTICATED, and RESOURCE_EXHAUSTED with `retry_after_seconds`."""

    def sign_out(self, secret: str, *, everywhere: bool, address: str) -> None:
        """Ends this session, or all of its person."""

    def make_first(self, link: str, *, user: str, password: str, address: str) -> None:
        """The first administrator. Raises UNAUTHENTICATED for a link that is not good, INVALID_ARGUMENT, ALREADY_EXISTS."""


class IdTokens(Protocol):
    """The OpenID provider, as the site needs it."""

    def id_token(self, start: OidcStart, pending: Pending, code: str, *, host_header: str) -> str:
        """The token for a code. Raises UNAUTHENTICATED for a code that is not good, PROVIDER_UNAVAILABLE."""
