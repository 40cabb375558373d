"""Accounts over gRPC."""

from __future__ import annotations

import threading
from typing import Any

from toban_admin_web.ports.people import Credential, SignedIn
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import AccountsStub
from toban_runtime.clock import Clock
from toban_transport.replica_client import Fleet

CALL_SECONDS = 5.0
ATTEMPT_SECONDS = 1.5
# A password is hashed for it, behind others.
SIGN_IN_SECONDS = 20.0
# There being an administrator is asked again after this long: only a database that was replaced has none any more.
REMEMBERED_SECONDS = 10.0


class PeopleClient:
    """Safe for threads."""

    def __init__(self, *, coordinators: Fleet, clock: Clock) -> None:
        self._coordinators = coordinators
        self._clock = clock
        self._lock = threading.Lock()
        self._known_until = float("-inf")

    def has_administrator(self) -> bool:
        """GetAccountsState, remembered while there is one."""
        with self._lock:
            if self._clock.monotonic() < self._known_until:
                return True
        found = bool(self._read("GetAccountsState", pb.GetAccountsStateRequest()).has_administrator)
        with self._lock:
            self._known_until = self._clock.monotonic() + REMEMBERED_SECONDS if found else float("-inf")
        return found

    def person(self, credential: Credential) -> SignedIn | None:
        """Authenticate with a session."""
        request = pb.AuthenticateRequest(session=credential.secret, address=credential.address)
        try:
            found = self._read("Authenticate", request)
        except TobanError as error:
            if error.code is ErrorCode.UNAUTHENTICATED and error.detail.get("sign_in"):
                return None
            raise
        return SignedIn(user=found.user, role=found.role)

    def sign_in(self, user: str, password: str, *, address: str, user_agent: str) -> str:
        """Authenticate with a password."""
        request = pb.AuthenticateRequest(user=user, password=password, address=address, user_agent=user_agent)
        return str(self._write("Authenticate", request, SIGN_IN_SECONDS).session)

    def sign_out(self, secret: str, *, everywhere: bool) -> None:
        """SignOut."""
        self._write("SignOut", pb.SignOutRequest(session=secret, everywhere=everywhere), CALL_SECONDS)

    def make_first(self, link: str, *, user: str, password: str, address: str) -> None:
        """RedeemBootstrapLink."""
        request = pb.RedeemBootstrapLinkRequest(secret=link, user=user, password=password, address=address)
        self._write("RedeemBootstrapLink", request, SIGN_IN_SECONDS)

    def _read(self, method: str, request: Any) -> Any:
        return self._coordinators.call(
            lambda channel: getattr(AccountsStub(channel), method),
            request,
            timeout=CALL_SECONDS,
            attempt_seconds=ATTEMPT_SECONDS,
        )

    def _write(self, method: str, request: Any, seconds: float) -> Any:
        return self._coordinators.call(lambda channel: getattr(AccountsStub(channel), method), request, timeout=seconds)
