"""The admin port, metrics and health documents."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest

from toban_observability import admin_port, metrics
from toban_observability.admin_port import AdminPort
from toban_observability.admin_thread import AdminThread
from toban_observability.health import Check, report


class Served:
    """A running admin port with a health document that the test sets."""

    def __init__(self) -> None:
        self.checks: dict[str, Check] = {"postgresql": Check("ok", 0.3)}
        self.broken = False
        self.port = 0

    def health(self) -> dict[str, Any]:
        if self.broken:
            raise RuntimeError("bug")
        return report(self.checks)

    async def raw(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return answer

    async def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        answer = await self.raw(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head, _, body = answer.decode().partition("\r\n\r\n")
        return int(head.split(" ")[1]), body


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """An admin port on a free port."""
    site = Served()
    port = AdminPort("127.0.0.1", 0, site.health)
    site.port = await port.start()
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


async def test_slow_requests_end(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_port, "REQUEST_SECONDS", 0.05)
    assert (await served.raw(b"GET /livez HTTP/1.1\r\n")).startswith(b"HTTP/1.1 408")


async def test_too_many_connections_are_closed_and_the_port_recovers(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_port, "MAX_CONNECTIONS", 2)
    held = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
    assert await served.raw(b"") == b""
    for _, writer in held:
        writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
    for reader, writer in held:
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
    assert (await served.get("/livez"))[0] == 200


async def test_stop_ends_open_connections() -> None:
    port = AdminPort("127.0.0.1", 0, lambda: report({}))
    number = await port.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", number)
    await asyncio.wait_for(port.stop(), 5)
    assert await reader.read() == b""
    writer.close()


def test_no_checks_is_ok() -> None:
    assert report({}) == {"status": "ok", "ready": True, "checks": {}}


def test_names_of_metrics_are_ours() -> None:
    with pytest.raises(ValueError, match="must start with toban_"):
        metrics.gauge("depth", "x")
    with pytest.raises(ValueError, match="must end in _total"):
        metrics.counter("toban_things", "x")


def test_the_same_port_beside_synchronous_code() -> None:
    checks = {"clock": Check("warning", 3)}
    admin = AdminThread("127.0.0.1", 0, lambda: report(checks))
    admin.stop()
    port = admin.start()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
        assert json.loads(answer.read())["status"] == "warning"
    with pytest.raises(OSError, match="in use"):
        taken = AdminThread("127.0.0.1", port, lambda: report(checks))
        try:
            taken.start()
        finally:
            taken.stop()
    admin.stop()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=10)
