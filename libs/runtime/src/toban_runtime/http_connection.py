"""Connections of `http` steps and webhooks: a name is resolved once, each address is judged, and only addresses that were judged are connected to."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from toban_domain.http_access import Entry, denial
from toban_domain.http_call import Request, Target

CONNECT_SECONDS = 10.0
CertificateError = ssl.SSLCertVerificationError
TlsContext = ssl.SSLContext


class AccessDeniedError(Exception):
    """The operator's list does not allow the connection; the text names host, address and setting."""


class AddressBook:
    """The allowed addresses of each host. Later tries and redirects get the same ones: a name that changes its meaning meanwhile has no effect.

    `setting` names the list of `entries` in refusals.
    """

    def __init__(self, entries: Sequence[Entry], *, setting: str) -> None:
        self._entries = entries
        self._setting = setting
        self._known: dict[tuple[str, int], list[str]] = {}

    def addresses(self, target: Target) -> list[str]:
        """Addresses in the order of the resolver. Raises AccessDeniedError when none is allowed, OSError when the name means none."""
        key = target.host, target.port
        if key not in self._known:
            found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
            refused = [self._denial(target, one) for one in addresses]
            if all(refused):
                raise AccessDeniedError(refused[0])
            self._known[key] = [one for one, why in zip(addresses, refused, strict=True) if not why]
        return self._known[key]

    def _denial(self, target: Target, address: str) -> str:
        return denial(self._entries, host=target.host, address=address, port=target.port, setting=self._setting)


class PinnedConnection(http.client.HTTPConnection):
    """One connection to one of `addresses`; it resolves nothing and knows no proxy. Each address has `connect_seconds` to accept it."""

    def __init__(
        self,
        target: Target,
        *,
        addresses: Sequence[str],
        timeout: float,
        context: ssl.SSLContext | None,
        connect_seconds: float = CONNECT_SECONDS,
    ) -> None:
        super().__init__(target.host, target.port, timeout=timeout)
        self._addresses = addresses
        self._context = context
        self._seconds = timeout
        self._connect_seconds = min(connect_seconds, timeout)
        self._aborted = False

    def connect(self) -> None:
        """To the first address that answers; TLS verifies the name of the URL. Raises OSError of the last one."""
        problem: OSError = OSError("no address")
        for address in self._addresses:
            try:
                sock = socket.create_connection((address, self.port), timeout=self._connect_seconds)
                break
            except OSError as error:
                problem = error
                # A name with many addresses that do not respond lasts no longer than one of them.
                self._raise_aborted()
        else:
            raise problem
        self.sock = sock
        if self._context is not None:
            # Not in one step: the handshake is part of what `abort` ends.
            self.sock = self._context.wrap_socket(sock, server_hostname=self.host, do_handshake_on_connect=False)
            self._raise_aborted()
            self.sock.do_handshake()
        self.sock.settimeout(self._seconds)
        self._raise_aborted()

    def abort(self) -> None:
        """Ends the connection from another thread: what waits for it gets an OSError, or the end of the response, at once."""
        self._aborted = True
        if (sock := self.sock) is not None:
            with suppress(OSError):
                # Not the method of a TLS socket, which would wait for the reader.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _raise_aborted(self) -> None:
        if self._aborted:
            raise OSError("the connection was aborted")


def tls_context(ca_file: str) -> ssl.SSLContext:
    """Verifies certificates and names, against the authorities in `ca_file`, or else those of the machine. Raises OSError."""
    return ssl.create_default_context(cafile=ca_file or None)


def check_ca_file(path: Path) -> None:
    """Raises ValueError for a file that holds no certificate of an authority."""
    try:
        if not tls_context(str(path)).get_ca_certs():
            raise ValueError(f"{path} holds no certificate of an authority")
    except OSError as error:
        raise ValueError(f"{path}: {error}; name a readable PEM file") from None


def send(connection: PinnedConnection, request: Request) -> http.client.HTTPResponse:
    """The response, whose body is not read yet. Raises OSError, HTTPException."""
    connection.putrequest(request.method, request.target.path, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", request.target.authority)
    connection.putheader("Connection", "close")
    for name, value in request.headers.items():
        connection.putheader(name, value)
    if request.body is not None or request.method in ("POST", "PUT", "PATCH"):
        connection.putheader("Content-Length", str(len(request.body or b"")))
    connection.endheaders(request.body)
    return connection.getresponse()
