"""One gRPC call by hand over a TLS connection of one's own: the client of gRPC gives no say in the TLS version and in its session."""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path

HEADERS, SETTINGS, DATA, END_STREAM, END_HEADERS, ACK = 1, 4, 0, 1, 4, 1
SECONDS = 30


class TlsSessionClient:
    """Calls a method with an empty message as the holder of the certificate in `folder`; keeps the TLS session from call to call."""

    def __init__(self, folder: Path, *, version: ssl.TLSVersion, port: int, server_name: str, path: str) -> None:
        self._context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self._context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self._context.minimum_version = self._context.maximum_version = version
        self._context.set_alpn_protocols(["h2"])
        self._port, self._server_name, self._path = port, server_name, path
        self._session: ssl.SSLSession | None = None
        self.answered = False
        """Whether the last call got a message, so no error."""

    def call(self) -> bool:
        """Calls on a connection of its own; True when the session of the last call was resumed. Raises OSError when the server refuses it."""
        raw = socket.create_connection(("127.0.0.1", self._port), timeout=SECONDS)
        with self._context.wrap_socket(raw, server_hostname=self._server_name, session=self._session) as sock:
            sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, 0, 0, b""))
            fields = [(":method", "POST"), (":scheme", "https"), (":path", self._path), (":authority", "x")]
            fields += [("te", "trailers"), ("content-type", "application/grpc"), ("grpc-timeout", "20S")]
            sock.sendall(_frame(HEADERS, END_HEADERS, 1, b"".join(_field(*one) for one in fields)))
            sock.sendall(_frame(DATA, END_STREAM, 1, struct.pack(">BI", 0, 0)))
            self.answered = self._read(sock)
            self._session = sock.session
            return sock.session_reused is True

    def _read(self, sock: ssl.SSLSocket) -> bool:
        answered = False
        with sock.makefile("rb") as stream:
            while head := stream.read(9):
                length, kind, flags, number = struct.unpack(">3sBBI", head)
                stream.read(int.from_bytes(length, "big"))
                if kind == SETTINGS and not flags & ACK:
                    sock.sendall(_frame(SETTINGS, ACK, 0, b""))
                answered = answered or (kind == DATA and number == 1)
                if kind == HEADERS and number == 1 and flags & END_STREAM:
                    return answered
        raise ConnectionError("the server closed the connection")


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + body


def _field(name: str, value: str) -> bytes:
    """A header as a literal, without the table of names."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
