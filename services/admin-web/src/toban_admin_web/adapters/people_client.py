"""Accounts over gRPC."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from hashlib import sha256
from typing import Any

from toban_admin_web.adapters.convert import from_proto
from toban_admin_web.ports.people import Credential, OidcStart, SignedIn, SignInWays
from toban_domain.access import TOKEN_PREFIX, Effect, Role, Rule, Selector
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import AccountsStub
from toban_runtime.clock import Clock
from toban_transport.person_rules import ADDRESS
from toban_transport.replica_client import Fleet

CALL_SECONDS = 5.0
ATTEMPT_SECONDS = 1.5
# A password is hashed for it, behind others.
SIGN_IN_SECONDS = 20.0
# A coordinator waits for the OpenID provider for less.
OIDC_SECONDS = 8.0
# There being an administrator is asked again after this long: only a database that was replaced has none any more.
REMEMBERED_SECONDS = 10.0
# Persons that are remembered, and sign-ins that wait.
KEPT = 10_000


class PeopleClient:
    """Safe for threads."""

    def __init__(self, *, coordinators: Fleet, clock: Clock) -> None:
        self._coordinators = coordinators
        self._clock = clock
        self._lock = threading.Lock()
        self._known_until = float("-inf")
        self._recent: OrderedDict[tuple[bytes, str], tuple[SignedIn, float]] = OrderedDict()
        # User and address, hashed → until when a coordinator throttles their sign-ins.
        self._waiting: OrderedDict[bytes, float] = OrderedDict()
        self._known = pb.GetAccountsStateResponse()

    def has_administrator(self) -> bool:
        """GetAccountsState, remembered while there is one."""
        return bool(self._state().has_administrator)

    def sign_in_ways(self) -> SignInWays:
        """GetAccountsState."""
        state = self._state()
        return SignInWays(passwords=not state.passwords_off, provider=state.oidc_name)

    def start_oidc(self) -> OidcStart:
        """StartOidcSignIn."""
        found = self._write("StartOidcSignIn", pb.StartOidcSignInRequest(), OIDC_SECONDS, None)
        return from_proto(OidcStart, found)

    def sign_in_with_oidc(self, id_token: str, nonce: str, *, address: str, user_agent: str) -> str:
        """SignInWithOidc."""
        request = pb.SignInWithOidcRequest(id_token=id_token, nonce=nonce, address=address, user_agent=user_agent)
        return str(self._write("SignInWithOidc", request, OIDC_SECONDS, address).session)

    def _state(self) -> Any:
        with self._lock:
            if self._clock.monotonic() < self._known_until:
                return self._known
        found = self._read("GetAccountsState", pb.GetAccountsStateRequest())
        with self._lock:
            self._known = found
            self._known_until = (
                self._clock.monotonic() + REMEMBERED_SECONDS if found.has_administrator else float("-inf")
            )
        return found

    def person(self, credential: Credential, *, max_age: float = 0.0) -> SignedIn | None:
        """Authenticate with a session or an API token. Good ones are remembered for callers with a `max_age`."""
        key, asked_at = (sha256(credential.secret.encode()).digest(), credential.address), self._clock.monotonic()
        with self._lock:
            person, since = self._recent.get(key, (None, 0.0))
        if person is not None and asked_at - since < max_age:
            return person
        person = self._authenticated(credential)
        with self._lock:
            self._recent.pop(key, None)
            if person is not None:
                self._recent[key] = (person, asked_at)
            if len(self._recent) > KEPT:
                self._recent.popitem(last=False)
        return person

    def _authenticated(self, credential: Credential) -> SignedIn | None:
        kind = "token" if credential.secret.startswith(TOKEN_PREFIX) else "session"
        request = pb.AuthenticateRequest(**{kind: credential.secret}, address=credential.address)
        try:
            found = self._read("Authenticate", request)
        except TobanError as error:
            if error.code is ErrorCode.UNAUTHENTICATED and error.detail.get("sign_in"):
                return None
            raise
        return SignedIn(
            user=found.user,
            role=found.role,
            worker_type=found.worker_type,
            access=found.access,
            rules=tuple(map(_rule, found.rules)),
        )

    def sign_in(self, user: str, password: str, *, address: str, user_agent: str) -> str:
        """Authenticate with a password. A throttled sign-in is refused here until its time, so that guesses do not load the cluster."""
        key = sha256(f"{address} {user}".encode("utf-8", "replace")).digest()
        self._refuse_early(key)
        request = pb.AuthenticateRequest(user=user, password=password, address=address, user_agent=user_agent)
        try:
            return str(self._write("Authenticate", request, SIGN_IN_SECONDS, address).session)
        except TobanError as error:
            seconds = error.detail.get("retry_after_seconds")
            if error.code is ErrorCode.RESOURCE_EXHAUSTED and isinstance(seconds, int | float):
                self._told_to_wait(key, seconds)
            raise

    def _refuse_early(self, key: bytes) -> None:
        with self._lock:
            left = self._waiting.get(key, 0.0) - self._clock.monotonic()
        if left > 0:
            seconds = math.ceil(left)
            message = f"too many failed sign-ins; try again in {seconds} s"
            raise TobanError(ErrorCode.RESOURCE_EXHAUSTED, message, detail={"retry_after_seconds": seconds})

    def _told_to_wait(self, key: bytes, seconds: float) -> None:
        with self._lock:
            self._waiting.pop(key, None)
            self._waiting[key] = self._clock.monotonic() + seconds
            if len(self._waiting) > KEPT:
                self._waiting.popitem(last=False)

    def sign_out(self, secret: str, *, everywhere: bool, address: str) -> None:
        """SignOut."""
        self._write("SignOut", pb.SignOutRequest(session=secret, everywhere=everywhere), CALL_SECONDS, address)

    def make_first(self, link: str, *, user: str, password: str, address: str) -> None:
        """RedeemBootstrapLink."""
        request = pb.RedeemBootstrapLinkRequest(secret=link, user=user, password=password, address=address)
        self._write("RedeemBootstrapLink", request, SIGN_IN_SECONDS, address)

    def _read(self, method: str, request: Any) -> Any:
        return self._coordinators.call(
            lambda channel: getattr(AccountsStub(channel), method),
            request,
            timeout=CALL_SECONDS,
            attempt_seconds=ATTEMPT_SECONDS,
        )

    def _write(self, method: str, request: Any, seconds: float, address: str | None) -> Any:
        return self._coordinators.call(
            lambda channel: getattr(AccountsStub(channel), method),
            request,
            timeout=seconds,
            metadata=() if address is None else ((ADDRESS, address),),
        )


def _rule(message: pb.AccessRule) -> Rule:
    one = message.selector
    selector = Selector(job=one.job, labels=dict(one.labels), scope=one.scope, scope_id=one.scope_id)
    return Rule(id=message.id, effect=Effect(message.effect), role=Role(message.role), selector=selector)
