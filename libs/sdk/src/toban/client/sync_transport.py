"""Carries out flows with the standard library, in the thread of the caller."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from typing import TypeVar

from toban.client.flow import Effect, Flow, Item, NextLine, Now, Open, Pause, Reply, Request, TransportError
from toban.client.target import Target
from toban.client.transport import lower_names, request_body, request_headers, request_target, transport_error

T = TypeVar("T")
_READ_BYTES = 65_536
_MOST_KEPT = 8
_FAILURES = (http.client.HTTPException, OSError)


class SyncTransport:
    """Thread-safe. Keeps connections, one for each thread that sends at the same time; a stream has its own."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._tls = target.tls()
        self._kept: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def run(self, flow: Flow[T]) -> T:
        """The answer of a flow without items."""
        found: list[T] = []
        for _ in self._steps(flow, found):
            raise AssertionError("this flow has no items")
        return found[0]

    def iterate(self, flow: Flow[T]) -> Iterator[object]:
        """The items of a flow, as they come. Closing the iterator closes its stream."""
        return self._steps(flow, [])

    def close(self) -> None:
        """Closes kept connections; the next request opens another."""
        with self._lock:
            kept, self._kept = self._kept, []
        for connection in kept:
            connection.close()

    def _steps(self, flow: Flow[T], found: list[T]) -> Iterator[object]:
        stream: _Stream | None = None
        answer: object = None
        failure: TransportError | None = None
        try:
            while True:
                effect: Effect = flow.send(answer) if failure is None else flow.throw(failure)
                answer = failure = None
                if isinstance(effect, Item):
                    yield effect.value
                    continue
                if stream is not None and not isinstance(effect, NextLine | Now):
                    stream.close()
                    stream = None
                try:
                    if isinstance(effect, Open):
                        stream, answer = self._open(effect.request)
                    elif isinstance(effect, NextLine):
                        answer = stream.next_line(effect.timeout) if stream is not None else None
                    else:
                        answer = self._perform(effect)
                except TransportError as error:
                    failure = error
        except StopIteration as stop:
            found.append(stop.value)
        finally:
            flow.close()
            if stream is not None:
                stream.close()

    def _perform(self, effect: Request | Pause | Now) -> object:
        if isinstance(effect, Pause):
            time.sleep(effect.seconds)
            return None
        if isinstance(effect, Now):
            return time.monotonic()
        # A change goes out on a new connection: on a kept one it would be open whether it arrived.
        connection = (self._take() if effect.repeatable else None) or self._connect(effect.timeout)
        try:
            return self._send(connection, effect)
        except _FAILURES as error:
            # The site may have closed the kept ones meanwhile.
            self.close()
            raise transport_error(error, self._target, effect.timeout) from None

    def _send(self, connection: http.client.HTTPConnection, request: Request) -> Reply:
        try:
            response = self._begin(connection, request)
            reply = Reply(status=response.status, headers=lower_names(response.getheaders()), body=response.read())
        except BaseException:
            connection.close()
            raise
        self._keep(connection)
        return reply

    def _begin(self, connection: http.client.HTTPConnection, request: Request) -> http.client.HTTPResponse:
        if connection.sock is not None:
            connection.sock.settimeout(request.timeout)
        body, headers = request_body(request), request_headers(self._target, request)
        connection.request(request.method, request_target(self._target, request), body=body, headers=headers)
        return connection.getresponse()

    def _open(self, request: Request) -> tuple[_Stream | None, Reply]:
        connection = self._connect(request.timeout)
        try:
            response = self._begin(connection, request)
            headers = lower_names(response.getheaders())
            if response.status == http.client.OK:
                return _Stream(connection, response, self._target), Reply(status=response.status, headers=headers)
            body = response.read()
        except _FAILURES as error:
            connection.close()
            raise transport_error(error, self._target, request.timeout) from None
        except BaseException:
            connection.close()
            raise
        connection.close()
        return None, Reply(status=response.status, headers=headers, body=body)

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._target.address
        connection: http.client.HTTPConnection
        if self._tls is None:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
        try:
            connection.connect()
        except _FAILURES as error:
            connection.close()
            raise transport_error(error, self._target, timeout, never_sent=True) from None
        return connection

    def _take(self) -> http.client.HTTPConnection | None:
        with self._lock:
            return self._kept.pop() if self._kept else None

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            # Without a socket the site has asked to close it.
            if connection.sock is not None and len(self._kept) < _MOST_KEPT:
                self._kept.append(connection)
                return
        connection.close()


class _Stream:
    """Lines as they come. `HTTPResponse.readline` would take a connection that breaks between two chunks for the end."""

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, target: Target
    ) -> None:
        self._connection = connection
        self._response = response
        self._target = target
        self._lines: list[bytes] = []
        self._rest = b""
        # The response owns the socket where the site closes the connection after it.
        self._socket = connection.sock

    def next_line(self, timeout: float) -> bytes | None:
        if self._lines:
            return self._lines.pop()
        try:
            while not self._lines:
                if self._socket is not None:
                    self._socket.settimeout(timeout)
                found = self._response.read1(_READ_BYTES)
                if not found:
                    if self._rest or self._response.length:
                        raise http.client.IncompleteRead(self._rest)
                    return None
                *lines, self._rest = (self._rest + found).split(b"\n")
                self._lines = lines[::-1]
        except _FAILURES as error:
            raise transport_error(error, self._target, timeout) from None
        return self._lines.pop()

    def close(self) -> None:
        self._response.close()
        self._connection.close()
