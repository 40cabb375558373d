"""Requests that are bounded in time and size, follow no redirect, and end with an object or one error."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from toban_domain.http_call import Request, parse_url
from toban_runtime.json_http import MAX_BYTES, JsonHttp, JsonHttpError

Answers = Callable[[socket.socket], None]


def of(body: bytes, status: str = "200 OK", more: str = "") -> Answers:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode()
    return lambda connection: connection.sendall(head + body)


@pytest.fixture
def endpoint() -> Iterator[Callable[[Answers], str]]:
    """The address of a server that answers one request so."""
    servers: list[socket.socket] = []

    def serve(answers: Answers) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def work() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.recv(65536)
                    answers(connection)

        threading.Thread(target=work, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/keys"

    yield serve
    for server in servers:
        server.close()


def get(url: str, seconds: float = 30.0) -> object:
    found = JsonHttp(seconds=seconds).send(Request("GET", parse_url(url), {}))
    return found.status, dict(found.body)


def test_an_object_with_its_status(endpoint: Callable[[Answers], str]) -> None:
    assert get(endpoint(of(b'{"a": 1}'))) == (200, {"a": 1})
    assert get(endpoint(of(b'{"error": "x"}', "400 Bad Request"))) == (400, {"error": "x"})


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (of(b"[1]"), "without a JSON object"),
        (of(b"<html>"), "without a JSON object"),
        (of(b"[" * 100_000), "without a JSON object"),
        (of(b"", "302 Found", "Location: http://127.0.0.1:1/\r\n"), "status 302 without a JSON object"),
        (of(b"x" * (MAX_BYTES + 1)), "longer than 256 KiB"),
        (lambda connection: connection.sendall(b"no http\r\n\r\n"), "127.0.0.1"),
        (lambda connection: None, "127.0.0.1"),
    ],
)
def test_anything_else_is_one_error(endpoint: Callable[[Answers], str], answers: Answers, text: str) -> None:
    with pytest.raises(JsonHttpError, match=text):
        get(endpoint(answers))


def test_an_answer_byte_by_byte_ends_in_time(endpoint: Callable[[Answers], str]) -> None:
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not over.wait(0.05):
                connection.sendall(b"X-A: b\r\n")

    try:
        with pytest.raises(JsonHttpError, match="no whole response within"):
            get(endpoint(drip), seconds=0.5)
    finally:
        over.set()


def test_a_resolver_that_does_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request counts until it ends, so that no more threads than those of the client wait for it."""
    over, real = threading.Event(), socket.getaddrinfo

    def resolve(host: str, *args: object, **more: object) -> object:
        if host[0].isdigit():
            return real(host, *args, **more)  # type: ignore[arg-type]
        over.wait(30)
        raise OSError("nothing found")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    client, request = JsonHttp(seconds=0.2, at_once=1), Request("GET", parse_url("http://provider.example/keys"), {})
    with pytest.raises(JsonHttpError, match=r"no whole response within 0\.2 s"):
        client.send(request)
    with pytest.raises(JsonHttpError, match="1 requests wait for a response already"):
        client.send(request, seconds=30)
    over.set()
    for thread in threading.enumerate():
        if thread.name == "json-http":
            thread.join(30)
    with pytest.raises(JsonHttpError, match="nothing found"):
        client.send(request, seconds=30)


def test_an_address_that_does_not_respond_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    good = socket.create_server(("127.0.0.1", 0))
    port = good.getsockname()[1]
    # A full backlog: the kernel drops what comes then, as a network does that drops packets.
    silent = socket.create_server(("127.0.0.2", port), backlog=0)
    filling = [socket.socket() for _ in range(3)]
    for one in filling:
        one.setblocking(False)
        one.connect_ex(("127.0.0.2", port))
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in ("127.0.0.2", "127.0.0.1")]
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *args, **more: real(host, *args, **more) if host[0].isdigit() else found
    )

    def serve() -> None:
        with good.accept()[0] as connection:
            connection.recv(65536)
            of(b"{}")(connection)

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    try:
        assert get(f"http://provider.example:{port}/keys", seconds=6.0) == (200, {})
    finally:
        for one in (*filling, silent, good):
            one.close()
    server.join()


def test_tls_with_an_authority_of_ours_only(
    tls: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    here = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *args, **more: real(host, *args, **more) if host[0].isdigit() else [here]
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "coordinator" / "tls.crt", tls / "coordinator" / "tls.key")
    listener = socket.create_server(("127.0.0.1", 0))
    request.addfinalizer(listener.close)
    url = f"https://coordinator.toban.internal:{listener.getsockname()[1]}/keys"

    def serve() -> None:
        for _ in range(2):
            with suppress(OSError), context.wrap_socket(listener.accept()[0], server_side=True) as connection:
                connection.recv(65536)
                of(b"{}")(connection)

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    with pytest.raises(JsonHttpError, match="CERTIFICATE_VERIFY_FAILED"):
        get(url)
    client = JsonHttp(ca_file=tls / "coordinator" / "ca.crt", seconds=30)
    assert client.send(Request("GET", parse_url(url), {})).status == 200
    server.join()


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(JsonHttpError, match=f"127.0.0.1:{port}/keys"):
        get(f"http://127.0.0.1:{port}/keys")


def test_a_file_without_authorities_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(ValueError, match="certificate"):
        JsonHttp(ca_file=tmp_path / "ca.pem")
