"""Serves a WSGI application on a port of its own, with a thread for each connection: a stream holds one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

SECONDS = 10.0


class _Threads(WSGIServer):
    """A thread a connection."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._requests: list[threading.Thread] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread."""
        self._requests.append(threading.Thread(target=self._serve, args=(request, client_address), daemon=True))
        self._requests[-1].start()

    def wait_for_requests(self) -> None:
        """Until every request has ended, or is taken to hang."""
        for one in self._requests:
            one.join(SECONDS)

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
            # None reaches what the application is before, when the next test uses that.
            server.wait_for_requests()
