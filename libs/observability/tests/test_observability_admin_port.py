"""The admin port, metrics and health documents."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toban_observability import admin_port, metrics
from toban_observability.admin_port import AdminPort
from toban_observability.admin_thread import AdminThread
from toban_observability.health import Check, report
from toban_testing.admin_port import TOKEN, ask, token_file
from toban_testing.waiting import until

CREDENTIAL = f"Authorization: Bearer {TOKEN}\r\n".encode()
FLOOD = """
import socket, sys, time
open_ = []
while True:
    time.sleep(0.001)
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(("127.0.0.1", int(sys.argv[1])))
    open_.append(sock)
    if len(open_) == 550:
        print("full", flush=True)
    if len(open_) >= 600:
        open_.pop(0).close()
"""


def closed(reason: str) -> float:
    return metrics.REGISTRY.get_sample_value("toban_admin_port_closed_total", {"reason": reason}) or 0.0


class Served:
    """A running admin port with a health document that the test sets."""

    def __init__(self) -> None:
        self.checks: dict[str, Check] = {"postgresql": Check("ok", 0.3)}
        self.broken = False
        self.port = 0
        self.served: AdminPort | None = None

    @property
    def admin(self) -> AdminPort:
        assert self.served is not None
        return self.served

    def health(self) -> dict[str, Any]:
        if self.broken:
            raise RuntimeError("bug")
        return report(self.checks)

    async def raw(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer

    async def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        answer = await self.raw(f"{method} {path} HTTP/1.1\r\nHost: x\r\n".encode() + CREDENTIAL + b"\r\n")
        head, _, body = answer.decode().partition("\r\n\r\n")
        return int(head.split(" ")[1]), body


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """An admin port on a free port."""
    site = Served()
    port = AdminPort("127.0.0.1", 0, site.health, token_file=token_file(tmp_path))
    site.served, site.port = port, await port.start()
    yield site
    await port.stop()


async def test_a_healthy_service(served: Served) -> None:
    assert await served.get("/livez") == (200, "ok\n")
    assert await served.get("/readyz?verbose=1") == (200, "ok\n")
    status, body = await served.get("/healthz")
    assert status == 200
    assert json.loads(body) == {"status": "ok", "ready": True, "checks": {"postgresql": {"status": "ok", "value": 0.3}}}


@pytest.mark.seed(186)
async def test_a_warning_is_ready_and_an_error_is_not_but_lives(served: Served) -> None:
    served.checks["redis"] = Check("warning", "unreachable for 3 s")
    assert (await served.get("/readyz"))[0] == 200
    assert json.loads((await served.get("/healthz"))[1])["status"] == "warning"
    served.checks["postgresql"] = Check("error", "refused")
    assert (await served.get("/readyz"))[0] == 503
    status, body = await served.get("/healthz")
    assert (status, json.loads(body)["status"]) == (503, "error")
    assert (await served.get("/livez"))[0] == 200


async def test_an_error_that_leaves_the_process_able_to_serve_is_ready(served: Served) -> None:
    served.checks["leader"] = Check("error", "none for 7 s", ready=True)
    assert (await served.get("/readyz"))[0] == 200
    status, body = await served.get("/healthz")
    assert (status, json.loads(body)["status"], json.loads(body)["ready"]) == (503, "error", True)
    served.checks["postgresql"] = Check("error", "refused")
    assert (await served.get("/readyz"))[0] == 503


async def test_a_broken_health_check_is_an_error_and_not_a_dead_port(served: Served) -> None:
    served.broken = True
    status, body = await served.get("/healthz")
    assert (status, json.loads(body)["status"]) == (503, "error")
    assert "bug" not in body
    assert (await served.get("/readyz"))[0] == 503
    assert (await served.get("/livez"))[0] == 200


async def test_metrics(served: Served) -> None:
    metrics.build_info("coordinator", "0.1.0")
    status, body = await served.get("/metrics")
    assert status == 200
    assert 'toban_build_info{service="coordinator",version="0.1.0"} 1.0' in body
    names = {line.split("{")[0].split(" ")[0] for line in body.splitlines() if not line.startswith("#")}
    assert all(name.startswith("toban_") for name in names)


async def test_only_get_and_head_of_four_paths(served: Served) -> None:
    assert (await served.get("/"))[0] == 404
    assert (await served.get("/livez/../metrics"))[0] == 404
    assert (await served.get("/livez", "POST"))[0] == 405
    assert await served.get("/livez", "HEAD") == (200, "")
    assert (await served.raw(b"nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400")
    assert (await served.raw(b"GET /livez HTTP/2\r\n\r\n")).startswith(b"HTTP/1.1 400")


async def test_large_headers_are_refused(served: Served) -> None:
    # Just over the limit, so that nothing is unread when the server closes (that would reset the connection).
    request = b"GET /livez HTTP/1.1\r\nX: " + b"a" * (admin_port.MAX_HEADER_BYTES + 1)
    assert (await served.raw(request)).startswith(b"HTTP/1.1 431")


async def test_many_headers_are_refused(served: Served) -> None:
    request = b"GET /livez HTTP/1.1\r\n" + b"X: a\r\n" * (admin_port.MAX_HEADER_BYTES // 6)
    assert (await served.raw(request)).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize(
    ("bound", "sent"), [("LINE_SECONDS", b"GET /livez"), ("REQUEST_SECONDS", b"GET /livez HTTP/1.1\r\nX: a\r\n")]
)
async def test_slow_requests_end(served: Served, monkeypatch: pytest.MonkeyPatch, bound: str, sent: bytes) -> None:
    before = closed("slow")
    monkeypatch.setattr(admin_port, bound, 0.05)
    assert (await served.raw(sent)).startswith(b"HTTP/1.1 408")
    assert closed("slow") == before + 1


def test_a_request_line_has_a_second() -> None:
    assert admin_port.LINE_SECONDS == 1.0
    assert admin_port.MAX_CONNECTIONS > 3 * admin_port.BACKLOG, "turns of the event loop until a request is read"


async def test_a_client_that_reads_nothing_does_not_stay(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_port, "REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(metrics, "exposition", lambda: b"a" * 50_000_000)
    _, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1)
    writer.write(b"GET /metrics HTTP/1.1\r\n" + CREDENTIAL + b"\r\n")
    before = closed("slow")
    await until(lambda: closed("slow") != before and not served.admin.connections)
    writer.transport.abort()


async def test_silent_connections_do_not_hold_the_port(served: Served) -> None:
    """Each /livez that fails brings the process closer to its restart."""
    held = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(admin_port.MAX_CONNECTIONS + 80)]
    for _ in range(22):
        assert await served.get("/livez") == (200, "ok\n")
    await held[0][0].read()  # to its end: the oldest was closed
    for _, writer in held:
        writer.transport.abort()


async def test_a_stream_of_silent_connections_does_not_hold_the_port(served: Served) -> None:
    """From a process of its own: up to a thousand connections a second, more of them open at a time than the port keeps."""
    flood = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FLOOD, str(served.port), stdout=asyncio.subprocess.PIPE
    )
    assert flood.stdout is not None
    await flood.stdout.readline()
    try:
        for _ in range(22):
            async with asyncio.timeout(60):
                assert await served.get("/livez") == (200, "ok\n")
    finally:
        flood.kill()
        await flood.wait()


async def test_the_oldest_without_a_request_makes_room(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_port, "MAX_CONNECTIONS", 2)
    before = closed("displaced")
    first, second = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
    third = await asyncio.open_connection("127.0.0.1", served.port)
    assert await first[0].read() == b""
    for reader, writer in (second, third):
        writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
    first[1].close()
    assert closed("displaced") == before + 1
    assert (await served.get("/livez"))[0] == 200


async def test_clients_that_read_nothing_make_room_too(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_port, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(metrics, "exposition", lambda: b"a" * 50_000_000)
    held = [await asyncio.open_connection("127.0.0.1", served.port, limit=1) for _ in range(2)]
    for _, writer in held:
        writer.write(b"GET /metrics HTTP/1.1\r\n" + CREDENTIAL + b"\r\n")
    for reader, _ in held:
        assert await reader.read(1) == b"H"
    assert await served.get("/livez") == (200, "ok\n")
    for _, writer in held:
        writer.transport.abort()


async def test_stop_ends_open_connections() -> None:
    port = AdminPort("127.0.0.1", 0, lambda: report({}))
    number = await port.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", number)
    await asyncio.wait_for(port.stop(), 60)
    assert await reader.read() == b""
    writer.close()


def test_no_checks_is_ok() -> None:
    assert report({}) == {"status": "ok", "ready": True, "checks": {}}


def test_names_of_metrics_are_ours() -> None:
    with pytest.raises(ValueError, match="must start with toban_"):
        metrics.gauge("depth", "x")
    with pytest.raises(ValueError, match="must end in _total"):
        metrics.counter("toban_things", "x")


def test_the_same_port_beside_synchronous_code(tmp_path: Path) -> None:
    checks = {"clock": Check("warning", 3)}
    admin = AdminThread("127.0.0.1", 0, lambda: report(checks), token_file=token_file(tmp_path))
    admin.stop()
    port = admin.start()
    assert json.loads(ask(f"127.0.0.1:{port}", "/healthz")[1])["status"] == "warning"
    with pytest.raises(OSError, match="in use"):
        taken = AdminThread("127.0.0.1", port, lambda: report(checks))
        try:
            taken.start()
        finally:
            taken.stop()
    admin.stop()
    with pytest.raises(OSError, match="refused"):
        ask(f"127.0.0.1:{port}", "/livez")
