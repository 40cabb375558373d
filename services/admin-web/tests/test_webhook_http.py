"""Webhooks over real sockets: what is sent, what counts as accepted, and which addresses are never reached."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_admin_web.adapters.webhook_http import WebhookPoster
from toban_admin_web.ports.webhooks import Outgoing, PostResult
from toban_domain.errors import TobanError

HEADERS = {"Content-Type": "application/json", "webhook-id": "evt_1"}
BODY = b'{"type":"webhook.test"}'


class Receiver:
    """Gives every connection the same bytes; `requests` are what it got. With `hold` it keeps the connection open."""

    def __init__(self, response: bytes, *, context: ssl.SSLContext | None = None, hold: bool = False) -> None:
        self.requests: list[bytes] = []
        self._response, self._context, self._hold = response, context, hold
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._held: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            try:
                given = self._context.wrap_socket(plain, server_side=True) if self._context else plain
                got = b""
                while not got.endswith(BODY):
                    got += given.recv(65536)
                self.requests.append(got)
                given.sendall(self._response)
                self._held.append(given)
                if not self._hold:
                    given.close()
            except OSError:
                plain.close()

    def close(self) -> None:
        self._listener.close()
        for one in self._held:
            one.close()


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    made: list[Receiver] = []

    def make(response: bytes = b"HTTP/1.1 204 No Content\r\n\r\n", **how: Any) -> Receiver:
        made.append(Receiver(response, **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


def post(
    url: str, *, allow: str = "public,127.0.0.1,::1", ca_file: Path | None = None, seconds: float = 20.0
) -> PostResult:
    one = Outgoing(delivery=1, lease="l", webhook="pager", url=url, headers=HEADERS, body=BODY)
    return WebhookPoster(allow=allow, ca_file=ca_file, seconds=seconds).post(one)


def response(status: int, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_a_request_is_the_body_with_its_headers(receive: Any) -> None:
    there = receive()
    assert post(f"http://127.0.0.1:{there.port}/hook?key=1") == PostResult(outcome="accepted", status=204)
    [got] = there.requests
    head = got.decode().split("\r\n")
    assert head[0] == "POST /hook?key=1 HTTP/1.1" and got.endswith(BODY)
    assert {"webhook-id: evt_1", "Content-Type: application/json", f"Host: 127.0.0.1:{there.port}"} <= set(head)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (response(200, b"ok"), PostResult(outcome="accepted", status=200)),
        (
            response(500, b"broken"),
            PostResult(outcome="refused", status=500, error="the target responded with 500: broken"),
        ),
        (response(410), PostResult(outcome="refused", status=410, error="the target responded with 410")),
        (
            response(429, b"", "Retry-After: 120"),
            PostResult(outcome="refused", status=429, error="the target responded with 429", retry_after=120),
        ),
        (
            response(503, b"", "Retry-After: Wed, 21 Oct 2026 07:28:00 GMT"),
            PostResult(outcome="refused", status=503, error="the target responded with 503"),
        ),
    ],
)
def test_responses(receive: Any, answer: bytes, expected: PostResult) -> None:
    assert post(f"http://127.0.0.1:{receive(answer).port}/") == expected


def test_a_redirect_is_not_followed(receive: Any) -> None:
    second = receive()
    first = receive(response(307, b"", f"Location: http://127.0.0.1:{second.port}/"))
    result = post(f"http://127.0.0.1:{first.port}/")
    assert (result.outcome, result.status) == ("refused", 307) and "redirects are not followed" in result.error
    assert len(first.requests) == 1 and second.requests == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://127.0.0.1/", "loopback address 127.0.0.1"),
        ("https://[::1]/", "loopback address ::1"),
        ("https://[::ffff:127.0.0.1]/", "loopback address"),
        ("https://[::ffff:7f00:1]/", "loopback address"),
        ("https://[64:ff9b::7f00:1]/", "loopback address"),
        ("https://[2002:7f00:1::]/", "reserved address"),
        ("https://2130706433/", "loopback address 127.0.0.1"),
        ("https://0x7f.1/", "loopback address 127.0.0.1"),
        ("https://10.1.2.3/", "private address 10.1.2.3"),
        ("https://[fe80::1]/", "link-local address fe80::1"),
        ("https://169.254.169.254/latest/meta-data", "metadata service"),
        ("https://[fd00:ec2::254]/", "metadata service"),
        ("https://0.0.0.0/", "reserved address"),
        ("http://93.184.216.34/", "webhooks go by https only"),
        ("http://[::ffff:93.184.216.34]/", "webhooks go by https only"),
        ("https://user:pw@example.com/", "has a user or password"),
    ],
)
def test_addresses_that_are_never_reached(url: str, words: str) -> None:
    result = post(url, allow="public")
    assert (result.outcome, result.status) == ("denied", 0) and words in result.error
    assert "address" not in words or "SCHEDULER_WEBHOOK_ALLOW of the site has no entry" in result.error


def test_a_name_that_changes_its_address_is_judged_by_the_one_that_is_used(
    receive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It resolves to a public address once, and to loopback whenever it is asked again: each try asks once and uses only that."""
    there, asked = receive(), []
    real = socket.getaddrinfo

    def resolve(host: str, port: int, *args: Any, **more: Any) -> Any:
        if host != "rebind.example":
            return real(host, port, *args, **more)
        asked.append(host)
        address = "192.0.2.1" if len(asked) % 2 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    for expected in ("192.0.2.1", "127.0.0.1"):
        result = post(f"https://rebind.example:{there.port}/", allow="public")
        assert result.outcome == "denied" and expected in result.error
    assert there.requests == [] and len(asked) == 2


def test_a_response_that_never_ends_ends_the_try(receive: Any) -> None:
    there = receive(b"HTTP/1.1 200 OK\r\nX: ", hold=True)
    result = post(f"http://127.0.0.1:{there.port}/", seconds=0.3)
    assert (result.outcome, result.error) == ("unreachable", "TimeoutError: no whole response within 0.3 s")


def test_a_target_that_is_not_there(receive: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    result = post(f"http://127.0.0.1:{port}/")
    assert result.outcome == "unreachable" and "ConnectionRefusedError" in result.error


def test_certificates_are_verified(receive: Any, tls: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "coordinator" / "tls.crt", tls / "coordinator" / "tls.key")
    there = receive(context=context)
    result = post(f"https://127.0.0.1:{there.port}/")
    assert result.outcome == "unreachable" and "SCHEDULER_WEBHOOK_CA_FILE names further authorities" in result.error
    assert there.requests == []


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"allow": "10.0.0.0/99"}, "SCHEDULER_WEBHOOK_ALLOW: '10.0.0.0/99'"),
        ({"allow": "public", "ca_file": Path("/nowhere.pem")}, "SCHEDULER_WEBHOOK_CA_FILE: "),
    ],
)
def test_settings_that_mean_nothing(how: dict[str, Any], words: str) -> None:
    with pytest.raises(TobanError, match="SCHEDULER_WEBHOOK") as refused:
        WebhookPoster(**{"ca_file": None, **how})
    assert words in refused.value.message
