"""Carries out flows in an event loop, with h11 for the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

import h11

from toban.client.flow import Effect, Flow, Item, NextLine, Now, Open, Pause, Reply, Request, TransportError
from toban.client.target import Target
from toban.client.transport import lower_names, request_body, request_headers, request_target, transport_error

T = TypeVar("T")
_READ_BYTES = 65_536
_MOST_KEPT = 8
_FAILURES = (h11.RemoteProtocolError, OSError, EOFError)


class AsyncTransport:
    """For one event loop. Keeps connections, one for each task that sends at the same time; a stream has its own."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._tls = target.tls()
        self._kept: list[_Connection] = []

    async def run(self, flow: Flow[T]) -> T:
        """The answer of a flow without items."""
        found: list[T] = []
        async for _ in self._steps(flow, found):
            raise AssertionError("this flow has no items")
        return found[0]

    def iterate(self, flow: Flow[T]) -> AsyncGenerator[object, None]:
        """The items of a flow, as they come. `aclose` of the iterator closes its stream."""
        return self._steps(flow, [])

    async def close(self) -> None:
        """Closes kept connections; the next request opens another."""
        kept, self._kept = self._kept, []
        for connection in kept:
            connection.close()

    async def _steps(self, flow: Flow[T], found: list[T]) -> AsyncGenerator[object, None]:
        stream: _Connection | None = None
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
                        stream, answer = await self._open(effect.request)
                    elif isinstance(effect, NextLine):
                        answer = await self._next_line(stream, effect.timeout)
                    else:
                        answer = await self._perform(effect)
                except TransportError as error:
                    failure = error
        except StopIteration as stop:
            found.append(stop.value)
        finally:
            flow.close()
            if stream is not None:
                stream.close()

    async def _perform(self, effect: Request | Pause | Now) -> object:
        if isinstance(effect, Pause):
            await asyncio.sleep(effect.seconds)
            return None
        if isinstance(effect, Now):
            return asyncio.get_running_loop().time()
        # A change goes out on a new connection: on a kept one it would be open whether it arrived.
        connection = self._kept.pop() if effect.repeatable and self._kept else await self._connect(effect.timeout)
        try:
            return await self._send(connection, effect)
        except _FAILURES as error:
            # The site may have closed the kept ones meanwhile.
            await self.close()
            raise transport_error(error, self._target, effect.timeout) from None

    async def _send(self, connection: _Connection, request: Request) -> Reply:
        try:
            head = await self._begin(connection, request)
            body = await connection.read_all(request.timeout)
        except BaseException:
            connection.close()
            raise
        if connection.is_reusable() and len(self._kept) < _MOST_KEPT:
            self._kept.append(connection)
        else:
            connection.close()
        return Reply(status=head.status, headers=head.headers, body=body)

    async def _begin(self, connection: _Connection, request: Request) -> Reply:
        body = request_body(request) or b""
        headers = request_headers(self._target, request)
        if request.body is not None or request.method != "GET":
            headers["Content-Length"] = str(len(body))
        line = request_target(self._target, request)
        started = h11.Request(method=request.method, target=line, headers=list(headers.items()))
        return await connection.begin(started, body, request.timeout)

    async def _open(self, request: Request) -> tuple[_Connection | None, Reply]:
        connection = await self._connect(request.timeout)
        try:
            head = await self._begin(connection, request)
            if head.status == 200:
                return connection, head
            body = await connection.read_all(request.timeout)
        except _FAILURES as error:
            connection.close()
            raise transport_error(error, self._target, request.timeout) from None
        except BaseException:
            connection.close()
            raise
        connection.close()
        return None, Reply(status=head.status, headers=head.headers, body=body)

    async def _next_line(self, stream: _Connection | None, timeout: float) -> bytes | None:
        if stream is None:
            return None
        try:
            return await stream.next_line(timeout)
        except _FAILURES as error:
            raise transport_error(error, self._target, timeout) from None

    async def _connect(self, timeout: float) -> _Connection:
        host, port = self._target.address
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(host, port, ssl=self._tls)
        except OSError as error:
            raise transport_error(error, self._target, timeout, never_sent=True) from None
        return _Connection(reader, writer)


class _Connection:
    """One connection. Raises RemoteProtocolError, TimeoutError and other OSErrors."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)
        self._lines: list[bytes] = []
        self._rest = b""

    async def begin(self, request: h11.Request, body: bytes, timeout: float) -> Reply:
        """Sends a request; the head of the answer."""
        for part in (request, *((h11.Data(data=body),) if body else ()), h11.EndOfMessage()):
            self._writer.write(self._http.send(part) or b"")
        async with asyncio.timeout(timeout):
            await self._writer.drain()
        while not isinstance(event := await self._event(timeout), h11.Response):
            pass
        headers = lower_names((name.decode("ascii"), value.decode("latin-1")) for name, value in event.headers)
        return Reply(status=event.status_code, headers=headers)

    async def read_all(self, timeout: float) -> bytes:
        """The body."""
        found = []
        while isinstance(event := await self._event(timeout), h11.Data):
            found.append(bytes(event.data))
        return b"".join(found)

    async def next_line(self, timeout: float) -> bytes | None:
        """A line of the body; None at its end."""
        while not self._lines:
            event = await self._event(timeout)
            if not isinstance(event, h11.Data):
                if self._rest:
                    raise EOFError
                return None
            *lines, self._rest = (self._rest + bytes(event.data)).split(b"\n")
            self._lines = lines[::-1]
        return self._lines.pop()

    def is_reusable(self) -> bool:
        """Whether another request may follow; prepares for it."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def close(self) -> None:
        """Without waiting for the other end."""
        self._writer.transport.abort()

    async def _event(self, timeout: float) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(timeout):
                found = await self._reader.read(_READ_BYTES)
            self._http.receive_data(found)
        if isinstance(event, h11.ConnectionClosed):
            raise EOFError
        return event
