"""Serves a WSGI application on a port of its own, with a thread for each connection: a stream holds one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from werkzeug.wsgi import ClosingIterator


class _Threads(WSGIServer):
    """A thread a connection."""

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread."""
        threading.Thread(target=self._serve, args=(request, client_address), daemon=True).start()

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        finally:
            self.shutdown_request(request)


class _Quiet(WSGIRequestHandler):
    """Writes no log."""

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


class ScriptServer(ThreadingHTTPServer):
    """A thread a connection, for servers that a test writes itself. A client may go away in the middle: that is no error of the server."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints what is one."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class RequestCount:
    """The WSGI application `app`, which counts the requests that are under way."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._count = 0
        self._changed = threading.Condition()

    def __call__(self, environ: Any, start_response: Any) -> Iterator[bytes]:
        """The answer of the application; the request ends when it is sent, or its client is gone."""
        self._add(1)
        try:
            answer = self._app(environ, start_response)
        except BaseException:
            self._add(-1)
            raise
        return ClosingIterator(answer, lambda: self._add(-1))

    def wait_for_none(self, seconds: float) -> bool:
        """False when one is under way for longer."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, seconds)

    def _add(self, change: int) -> None:
        with self._changed:
            self._count += change
            self._changed.notify_all()


@contextmanager
def serving(app: Any, on_stop: Callable[[], None]) -> Iterator[str]:
    """The address of `app` within the block; `on_stop` ends its streams."""
    with make_server("127.0.0.1", 0, app, server_class=_Threads, handler_class=_Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            on_stop()
            server.shutdown()
            thread.join()
