"""A site that a test scripts: answers in turn, problem documents, streams that break."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from toban_testing.http_server import ScriptServer

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class ScriptedSite:
    """Answers requests in turn with `script`: each answer writes to the handler. The last one stays."""

    url: str = ""
    script: list[Answer] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        body = json.loads(handler.rfile.read(length)) if length else None
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self.lock:
            self.seen.append(Seen(handler.command, handler.path, headers, body))
            answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        answer(handler)


def says(status: int, document: Any = None, kind: str = "application/json", **headers: str) -> Answer:
    """An answer with JSON."""

    def write(handler: BaseHTTPRequestHandler) -> None:
        body = json.dumps(document if document is not None else {}).encode()
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return write


def problem(status: int, code: str, detail: str = "wrong", **more: Any) -> Answer:
    """A problem document."""
    headers = {name: more.pop(name) for name in list(more) if name[0].isupper()}
    document = {"code": code, "detail": detail, "request_id": "r1", **more}
    return says(status, document, "application/problem+json", **headers)


def streams(*parts: bytes, breaks: bool = False) -> Answer:
    """Server-sent events in chunks; with `breaks` the connection ends without the last chunk."""

    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        handler.wfile.flush()
        if not breaks:
            handler.wfile.write(b"0\r\n\r\n")
        handler.close_connection = True

    return write


def breaks(handler: BaseHTTPRequestHandler) -> None:
    """Ends the connection without an answer."""
    handler.close_connection = True


def event(name: str, data: Any) -> bytes:
    """A server-sent event."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


@contextmanager
def scripted_site() -> Iterator[ScriptedSite]:
    """A running one."""
    scripted = ScriptedSite()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            """Every method alike."""
            scripted.answer(self)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ScriptServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        scripted.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield scripted
        finally:
            server.shutdown()
            thread.join()
