"""A TLS proxy for a server without TLS: terminates TLS connections, forwards plain ones unchanged."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from toban_runtime.clock import SystemClock
from toban_stack.certs import make_ca

CHUNK_BYTES = 65_536
HANDSHAKE = b"\x16"


def server_context(directory: Path) -> ssl.SSLContext:
    """The context of a server on 127.0.0.1; its certificate is issued by `ca.crt` in `directory`."""
    make_ca(directory)
    authority = x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), SystemClock().wall()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    (directory / "server.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / "server.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.crt", directory / "server.key")
    return context


class TlsFront:
    """Forwards 127.0.0.1:`port` to 127.0.0.1:`target`. `port` is known before the server starts, which may have to announce it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.target = 0
        self.handshakes = 0
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._start(self._accept())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # an aborted transport closes its socket in the next iteration of the event loop
        self._listener.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        while True:
            peer, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            self._start(self._serve(peer))

    async def _serve(self, peer: socket.socket) -> None:
        writers: list[asyncio.StreamWriter] = []
        try:
            reader, writer = await self._open(peer)
            writers.append(writer)
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self.target)
            writers.append(upstream_writer)
            await asyncio.wait(
                [
                    asyncio.ensure_future(_forward(reader, upstream_writer)),
                    asyncio.ensure_future(_forward(upstream_reader, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        except OSError:
            peer.close()  # the client rejected the certificate, or the server is unreachable
        finally:
            for side in writers:
                side.transport.abort()

    async def _open(self, peer: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop, greeted = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(peer, greeted.set)
        try:
            await greeted.wait()
        finally:
            loop.remove_reader(peer)
        tls = peer.recv(1, socket.MSG_PEEK) == HANDSHAKE
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, peer, ssl=self._context if tls else None)
        self.handshakes += tls
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while chunk := await source.read(CHUNK_BYTES):
            sink.write(chunk)
            await sink.drain()
    except OSError:
        pass  # either side disconnected: the caller closes both
