"""Certificates that nobody of ours has issued or that are of no use any more, resumed sessions, and connections without a handshake."""

from __future__ import annotations

import socket
import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from toban_domain.errors import ErrorCode
from toban_runtime.clock import SystemClock
from toban_stack import certificate_rotation
from toban_testing.clock import FakeClock
from toban_testing.forged_certificates import START, forge
from toban_testing.tls_session_client import TlsSessionClient
from toban_transport.channel import open_sync_channel
from toban_transport.tls import TlsFiles

HEALTH = "/grpc.health.v1.Health/Check"
"""Every service of ours may call it, so a refusal is one of the certificate."""
OURS, DNS = "spiffe://toban.internal/coordinator", "coordinator.toban.internal"
REFUSALS = (ErrorCode.UNAVAILABLE, ErrorCode.PERMISSION_DENIED, ErrorCode.UNAUTHENTICATED)
LONG_AGO = (START - timedelta(days=400), START - timedelta(days=370))
SOON = (START + timedelta(days=8000), START + timedelta(days=9000))
SECONDS = 20.0
HALF_OPEN = 200

FORGED: dict[str, dict[str, Any]] = {
    "of another authority with the same name": {"uris": [OURS], "own_ca": True},
    "signed by the key of a service": {"uris": [OURS], "signed_by": "executor"},
    "expired": {"uris": [OURS], "valid": LONG_AGO},
    "not yet valid": {"uris": [OURS], "valid": SOON},
    "without an id": {"uris": []},
    "with an id as common name only": {"uris": [], "common_name": OURS},
    "with two ids": {"uris": [OURS, "spiffe://toban.internal/executor"]},
    "of another domain": {"uris": ["spiffe://elsewhere.internal/coordinator"]},
    "of a longer path": {"uris": ["spiffe://toban.internal/coordinator/1"]},
    "in upper case": {"uris": ["spiffe://toban.internal/COORDINATOR"]},
    "with an encoded slash": {"uris": ["spiffe://toban.internal/executor%2Fpci"]},
    "of a service that is none": {"uris": ["spiffe://toban.internal/root"]},
    "of a group with a path": {"uris": ["spiffe://toban.internal/executor/../coordinator"]},
    "of another scheme": {"uris": ["https://toban.internal/coordinator"]},
    "that services share": {"uris": ["spiffe://toban.internal/shared/all"]},
}


def check(channel: grpc.Channel) -> Any:
    return lambda: channel.unary_unary(HEALTH)(b"", timeout=SECONDS)


def test_a_good_certificate_is_accepted(channel: Any, servers: Any) -> None:
    for server in servers:
        assert check(channel(server, "admin-cli"))() is not None


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_certificate_makes_no_call(
    attacks: Any, channel: Any, servers: Any, stack: Any, tmp_path: Path, kind: str
) -> None:
    given = dict(FORGED[kind])
    folder = forge(stack.home.tls, tmp_path / "forged", given.pop("uris"), [DNS], **given)
    clock = FakeClock(start=given.get("valid", (START,))[0])
    for server in servers:
        attacks.call(f"{kind} at {server}", check(channel(server, folder, clock=clock)), *REFUSALS)


def test_no_certificate_and_no_encryption_make_no_call(attacks: Any, servers: Any, stack: Any) -> None:
    trusted = grpc.ssl_channel_credentials((stack.home.tls / "ca" / "ca.crt").read_bytes())
    for server, address in servers.items():
        options = [("grpc.ssl_target_name_override", f"{server}.toban.internal")]
        with grpc.secure_channel(address, trusted, options=options) as one, grpc.insecure_channel(address) as other:
            attacks.call(f"no certificate at {server}", check(one), ErrorCode.UNAVAILABLE)
            attacks.call(f"no encryption at {server}", check(other), ErrorCode.UNAVAILABLE)


def test_no_server_answers_under_the_name_of_another(attacks: Any, servers: Any, stack: Any) -> None:
    """A client pins the service, so a stolen address is of no use without the key of that service."""
    for server, address in servers.items():
        for other in sorted(set(servers) - {server}):
            files = TlsFiles(stack.home.tls / "admin-cli")
            with open_sync_channel(address, other, files, "toban.internal") as channel:
                attacks.call(f"{server} as {other}", check(channel), ErrorCode.UNAVAILABLE)


def client(folder: Path, address: str, server: str, version: ssl.TLSVersion) -> TlsSessionClient:
    port = int(address.rpartition(":")[2])
    return TlsSessionClient(folder, version=version, port=port, server_name=f"{server}.toban.internal", path=HEALTH)


def test_calls_over_tls_1_2_are_refused(attacks: Any, servers: Any, stack: Any) -> None:
    for server, address in servers.items():
        made = client(stack.home.tls / "admin-cli", address, server, ssl.TLSVersion.TLSv1_2)
        for _ in range(2):
            made.call()
            attacks.expect(f"TLS 1.2 at {server}", refused=not made.answered)


def test_a_denied_certificate_makes_no_call_and_resumes_no_session(
    attacks: Any, admin: Any, servers: Any, stack: Any, tmp_path: Path
) -> None:
    now = SystemClock().wall()
    names, valid = ["spiffe://toban.internal/admin-cli"], (now - timedelta(hours=1), now + timedelta(days=1))
    folder = forge(stack.home.tls, tmp_path / "stolen", names, [DNS], valid=valid)
    old = {server: client(folder, address, server, ssl.TLSVersion.TLSv1_3) for server, address in servers.items()}
    for one in old.values():
        assert not one.call() and one.call() and one.answered, "the session is resumed"
    serial = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes()).serial_number
    certificate_rotation.deny(stack.home.tls, f"{serial:x}")
    for server, address in servers.items():

        def refused(one: TlsSessionClient) -> bool:
            try:
                one.call()
            except OSError:
                return True
            return not one.answered

        # Servers look at the list once a second.
        admin.until(
            lambda server=server, address=address: refused(client(folder, address, server, ssl.TLSVersion.TLSv1_3)),
            of=f"{server} has the deny-list",
        )
        attacks.expect(f"a denied certificate at {server}", refused=True)
        attacks.expect(f"a resumed session of it at {server}", refused=refused(old[server]))


@pytest.mark.long
def test_connections_without_a_handshake_are_closed_and_stop_no_call(
    attacks: Any, admin: Any, servers: Any, stack: Any
) -> None:
    for server, address in servers.items():
        host, _, port = address.rpartition(":")
        silent = [socket.create_connection((host, int(port)), timeout=60) for _ in range(HALF_OPEN)]
        try:
            files = TlsFiles(stack.home.tls / "admin-cli")
            with open_sync_channel(address, server, files, "toban.internal") as channel:
                assert check(channel)() is not None
            for one in silent:
                attacks.expect(f"a silent connection to {server}", refused=closed(one))
        finally:
            for one in silent:
                one.close()


def closed(silent: socket.socket) -> bool:
    """Whether the server ends it, within the time limit of the socket."""
    try:
        return silent.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
