"""Names are resolved once, and only addresses that were judged are connected to; TLS verifies the name of the URL."""

import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from toban_domain.http_access import parse_access
from toban_domain.http_call import Request, Target
from toban_runtime.http_connection import (
    AccessDeniedError,
    AddressBook,
    PinnedConnection,
    check_ca_file,
    send,
    tls_context,
)

RESPONSE = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What a name resolves to, one answer after the other; numbers resolve as ever."""
    answers: list[list[str]] = []
    real = socket.getaddrinfo

    def resolve(host: str, port: int, *args: Any, **more: Any) -> Any:
        if host[0].isdigit():
            return real(host, port, *args, **more)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in answers.pop(0)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return answers


def test_a_name_that_changes_its_meaning_has_no_effect(resolver: list[list[str]]) -> None:
    resolver += [["93.184.216.34"], ["10.0.0.1"]]
    book, target = (
        AddressBook(parse_access("public"), setting="SCHEDULER_LIST"),
        Target("https", "rebind.example", 443, "/"),
    )
    assert book.addresses(target) == ["93.184.216.34"]
    assert book.addresses(target) == ["93.184.216.34"]
    assert resolver == [["10.0.0.1"]]


def test_only_the_allowed_ones_of_several_addresses_are_used(resolver: list[list[str]]) -> None:
    resolver += [["10.0.0.1", "93.184.216.34"], ["10.0.0.1", "127.0.0.1"]]
    book = AddressBook(parse_access("public"), setting="SCHEDULER_LIST")
    assert book.addresses(Target("http", "two.example", 80, "/")) == ["93.184.216.34"]
    with pytest.raises(AccessDeniedError, match=r"'none\.example' port 80 is the private address 10\.0\.0\.1"):
        book.addresses(Target("http", "none.example", 80, "/"))


def test_tls_to_the_pinned_address_verifies_the_name(resolver: list[list[str]], tls: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "coordinator" / "tls.crt", tls / "coordinator" / "tls.key")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    received: list[bytes] = []

    def serve() -> None:
        with context.wrap_socket(listener.accept()[0], server_side=True) as connection:
            received.append(connection.recv(65536))
            connection.sendall(RESPONSE)

    server = threading.Thread(target=serve)
    server.start()
    resolver.append(["127.0.0.1"])
    target = Target("https", "coordinator.toban.internal", port, "/a")
    ca = tls / "coordinator" / "ca.crt"
    connection = PinnedConnection(
        target,
        addresses=AddressBook(parse_access(f"127.0.0.1:{port}"), setting="SCHEDULER_LIST").addresses(target),
        timeout=10,
        context=tls_context(str(ca)),
    )
    assert send(connection, Request("GET", target, {})).status == 204
    connection.close()
    server.join()
    listener.close()
    assert f"Host: coordinator.toban.internal:{port}".encode() in received[0]


def test_a_file_without_an_authority(tmp_path: Path, tls: Path) -> None:
    check_ca_file(tls / "coordinator" / "ca.crt")
    (tmp_path / "a.pem").write_text("nothing\n")
    for path in (tmp_path / "a.pem", tmp_path / "none.pem", tls / "coordinator" / "tls.crt"):
        with pytest.raises(ValueError, match=path.name):
            check_ca_file(path)


def test_when_its_time_is_over_no_further_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target("http", "many.example", 80, "/")
    connection = PinnedConnection(target, addresses=["192.0.2.1", "192.0.2.2"], timeout=10, context=None)
    tried: list[str] = []

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        tried.append(address[0])
        connection.abort()
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(OSError, match="aborted"):
        connection.connect()
    assert tried == ["192.0.2.1"]
