"""The plain HTTP admin port: /livez /readyz /healthz /metrics. GET and HEAD only, one request a connection, bounded in size and time.

It responds from memory: the process is live while its event loop runs, independently of PostgreSQL and Redis.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

from toban_observability import metrics
from toban_observability.health import set_health_metrics
from toban_observability.logs import get_logger

MAX_HEADER_BYTES = 8192
MAX_CONNECTIONS = 64
REQUEST_SECONDS = 5.0

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout"}
_REASONS |= {431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable"}
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"

_log = get_logger(__name__)
Answer = tuple[int, str, bytes]


class AdminPort:
    """Serves one process's health and metrics.

    `health` returns the document of `toban_observability.health.report` without blocking; the process is ready when its "ready" is true.
    """

    def __init__(self, host: str, port: int, health: Callable[[], dict[str, Any]]) -> None:
        self._host = host
        self._port = port
        self._health = health
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Binds and serves; returns the bound port. Raises OSError when the address is in use."""
        self._server = await asyncio.start_server(self._accept, self._host, self._port, limit=MAX_HEADER_BYTES)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stops listening and closes open connections."""
        if self._server is None:
            return
        self._server.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(2 * REQUEST_SECONDS):
                method, answer = await self._read(reader)
                writer.write(_encode(answer, with_body=method != "HEAD"))
                await writer.drain()
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            # The client disconnected or is too slow: there is no connection to respond on.
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, TimeoutError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> tuple[str, Answer]:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return "GET", (431, _TEXT, b"header too large\n")
        except TimeoutError:
            return "GET", (408, _TEXT, b"no request in time\n")
        parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return "GET", (400, _TEXT, b"not an HTTP/1.1 request\n")
        if parts[0] not in ("GET", "HEAD"):
            return "GET", (405, _TEXT, b"only GET and HEAD\n")
        return parts[0], self._answer(parts[1].partition("?")[0])

    def _answer(self, path: str) -> Answer:
        if path == "/livez":
            return 200, _TEXT, b"ok\n"
        if path == "/metrics":
            set_health_metrics(self._document())
            return 200, metrics.CONTENT_TYPE, metrics.exposition()
        if path not in ("/readyz", "/healthz"):
            return 404, _TEXT, b"one of /livez /readyz /healthz /metrics\n"
        document = self._document()
        if path == "/readyz":
            return (200, _TEXT, b"ok\n") if document["ready"] else (503, _TEXT, b"not ready: see /healthz\n")
        status = 503 if document["status"] == "error" else 200
        return status, _JSON, json.dumps(document, default=str).encode() + b"\n"

    def _document(self) -> dict[str, Any]:
        try:
            return self._health()
        except Exception as error:
            _log.exception("computing the health document failed")
            failed = {"status": "error", "value": type(error).__name__}
            return {"status": "error", "ready": False, "checks": {"health": failed}}


def _encode(answer: Answer, *, with_body: bool) -> bytes:
    status, kind, body = answer
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")
