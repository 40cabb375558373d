"""The plain HTTP admin port: /livez /readyz /healthz /metrics. GET and HEAD only, one request a connection, bounded in size and time.

/healthz and /metrics name other processes and errors, and jobs of an executor may share the loopback with services: they need the token
of the admin port. /livez and /readyz say only yes or no, and need none.

It responds from memory: the process is live while its event loop runs, independently of PostgreSQL and Redis.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toban_observability import metrics
from toban_observability.admin_token import AdminToken
from toban_observability.health import set_health_metrics
from toban_observability.logs import get_logger

MAX_HEADER_BYTES = 8192
BACKLOG = 100
"""Connections that the kernel keeps ready, and that one turn of the event loop accepts at most."""
MAX_CONNECTIONS = 5 * BACKLOG
"""Above this a new connection displaces the oldest one that has sent no complete request. A request that was sent together with its
connection is read three turns of the event loop later, so it is answered however many silent connections follow it."""
LINE_SECONDS = 1.0
REQUEST_SECONDS = 5.0

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
}
_REASONS |= {431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable"}
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"

_log = get_logger(__name__)
_closed = metrics.counter(
    "toban_admin_port_closed_total",
    "Connections of the admin port that were closed without what they asked for: slow, or displaced by newer ones while too many were open.",
    ("reason",),
)
Answer = tuple[int, str, bytes]


class AdminPort:
    """Serves one process's health and metrics.

    `health` returns the document of `toban_observability.health.report` without blocking; the process is ready when its "ready" is true.
    `token_file` holds the token that /healthz and /metrics ask for; without it they refuse every request.
    """

    def __init__(
        self, host: str, port: int, health: Callable[[], dict[str, Any]], *, token_file: Path | None = None
    ) -> None:
        self._host = host
        self._port = port
        self._health = health
        self._token = AdminToken(token_file)
        self._server: asyncio.Server | None = None
        # Both oldest first.
        self._silent: dict[asyncio.Task[None], None] = {}
        self._answering: dict[asyncio.Task[None], None] = {}

    async def start(self) -> int:
        """Binds and serves; returns the bound port. Raises OSError when the address is in use."""
        self._server = await asyncio.start_server(
            self._accept, self._host, self._port, limit=MAX_HEADER_BYTES, backlog=BACKLOG
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stops listening and closes open connections."""
        if self._server is None:
            return
        self._server.close()
        tasks = (*self._silent, *self._answering)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._silent) + len(self._answering)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.connections >= MAX_CONNECTIONS:
            self._displace()
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._silent[task] = None
        task.add_done_callback(lambda done: self._end(done, writer))

    def _displace(self) -> None:
        among = self._silent or self._answering
        oldest = next(iter(among))
        del among[oldest]
        oldest.cancel()
        _closed.labels("displaced").inc()

    def _end(self, task: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        self._silent.pop(task, None)
        self._answering.pop(task, None)
        # Without waiting for a client that does not read its response.
        writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(2 * REQUEST_SECONDS):
                method, answer = await self._read(reader)
                writer.write(_encode(answer, with_body=method != "HEAD"))
                writer.close()
                await writer.wait_closed()
        except TimeoutError:
            _closed.labels("slow").inc()
        except (ConnectionError, asyncio.IncompleteReadError):
            # The client disconnected: there is no connection to respond on.
            pass

    async def _read(self, reader: asyncio.StreamReader) -> tuple[str, Answer]:
        try:
            line, authorization = await _read_head(reader)
        except (asyncio.LimitOverrunError, OverflowError):
            return "GET", (431, _TEXT, b"header too large\n")
        except TimeoutError:
            _closed.labels("slow").inc()
            return "GET", (408, _TEXT, b"no request in time\n")
        finally:
            self._move()
        parts = line.decode("latin-1").removesuffix("\r\n").split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return "GET", (400, _TEXT, b"not an HTTP/1.1 request\n")
        if parts[0] not in ("GET", "HEAD"):
            return "GET", (405, _TEXT, b"only GET and HEAD\n")
        return parts[0], self._answer(parts[1].partition("?")[0], authorization)

    def _move(self) -> None:
        """The connection of this task has its request, or its chance was used."""
        task: Any = asyncio.current_task()
        if task in self._silent:
            del self._silent[task]
            self._answering[task] = None

    def _answer(self, path: str, authorization: bytes) -> Answer:
        if path == "/livez":
            return 200, _TEXT, b"ok\n"
        if path == "/readyz":
            return (200, _TEXT, b"ok\n") if self._document()["ready"] else (503, _TEXT, b"not ready: see /healthz\n")
        if path not in ("/healthz", "/metrics"):
            return 404, _TEXT, b"one of /livez /readyz /healthz /metrics\n"
        if refusal := self._token.refusal(authorization, asyncio.get_running_loop().time()):
            return 401, _TEXT, f"{refusal}\n".encode()
        document = self._document()
        if path == "/metrics":
            set_health_metrics(document)
            return 200, metrics.CONTENT_TYPE, metrics.exposition()
        status = 503 if document["status"] == "error" else 200
        return status, _JSON, json.dumps(document, default=str).encode() + b"\n"

    def _document(self) -> dict[str, Any]:
        try:
            return self._health()
        except Exception as error:
            _log.exception("computing the health document failed")
            failed = {"status": "error", "value": type(error).__name__}
            return {"status": "error", "ready": False, "checks": {"health": failed}}


async def _read_head(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The request line and the value of the header Authorization, empty without one, after all headers have come.

    Raises TimeoutError, IncompleteReadError, and OverflowError for too many headers.
    """
    authorization = b""
    async with asyncio.timeout(REQUEST_SECONDS):
        async with asyncio.timeout(LINE_SECONDS):
            line = await reader.readuntil(b"\r\n")
        size = len(line)
        while (header := await reader.readuntil(b"\r\n")) != b"\r\n":
            size += len(header)
            if size > MAX_HEADER_BYTES:
                raise OverflowError(size)
            name, _, value = header.partition(b":")
            if name.lower() == b"authorization":
                authorization = value.strip()
    return line, authorization


def _encode(answer: Answer, *, with_body: bool) -> bytes:
    status, kind, body = answer
    challenge = "WWW-Authenticate: Bearer\r\n" if status == 401 else ""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{challenge}"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")
