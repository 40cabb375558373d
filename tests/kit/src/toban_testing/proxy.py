"""A TCP proxy that injects faults: it forwards, delays, freezes, swallows or resets connections."""

import asyncio
import socket
import struct
from types import TracebackType
from typing import Self

CHUNK_BYTES = 65_536


class FaultProxy:
    """Forwards 127.0.0.1:`port` to a target. Use it as `async with FaultProxy(host=..., port=...) as proxy`."""

    def __init__(self, *, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._cut = False
        self._delay = 0.0
        # Connections get the number of their generation; those below `_swallowed` are open and dead.
        self._generation = 0
        self._swallowed = 0
        self.port = 0

    @property
    def address(self) -> str:
        """host:port to connect to instead of the target."""
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        await self.cut()

    async def cut(self) -> None:
        """Resets every connection and refuses new ones until `heal`."""
        self._cut = True
        for writer in self._writers:
            _reset(writer)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # an aborted transport closes its socket in the next iteration of the event loop

    def freeze(self) -> None:
        """Keeps connections open and forwards nothing, like a network partition, until `heal`."""
        self._flowing.clear()

    def swallow(self) -> None:
        """Open connections go on acknowledging bytes and forward none, for ever; new ones work. As a proxy does whose backend died."""
        self._generation += 1
        self._swallowed = self._generation

    def retarget(self, *, host: str, port: int) -> None:
        """New connections go to another target; open ones keep theirs."""
        self._target = (host, port)

    def delay(self, seconds: float) -> None:
        """Delays each chunk by `seconds`, in each direction."""
        self._delay = seconds

    def heal(self) -> None:
        """Forwards again immediately, also on frozen connections; what `swallow` killed stays dead."""
        self._cut = False
        self._delay = 0.0
        self._flowing.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = {writer}
        self._writers.add(writer)
        generation = self._generation
        try:
            if not self._cut:
                upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
                mine.add(upstream_writer)
                self._writers.add(upstream_writer)
                await asyncio.gather(
                    self._forward(reader, upstream_writer, generation),
                    self._forward(upstream_reader, writer, generation),
                )
        except OSError:
            pass  # either side disconnected: the caller closes both
        finally:
            self._writers -= mine
            for side in mine:
                if self._cut:
                    _reset(side)
                else:
                    side.close()

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, generation: int) -> None:
        while chunk := await source.read(CHUNK_BYTES):
            if generation < self._swallowed:
                continue
            await self._flowing.wait()
            if self._delay:
                await asyncio.sleep(self._delay)
            sink.write(chunk)
            await sink.drain()
        if generation < self._swallowed:
            # The other side does not get to know of this end either, until the proxy ends.
            await asyncio.Event().wait()
        if sink.can_write_eof():
            sink.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes with RST: the other side gets an error instead of an end of file."""
    if not writer.transport.is_closing():
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
