"""The fault proxy forwards, cuts, freezes, swallows and heals."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from toban_testing.proxy import FaultProxy


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.fixture
async def echo_port() -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(100):
                writer.write(data)
                await writer.drain()
        await close(writer)

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_forwards_freezes_and_heals(echo_port: int) -> None:
    async with FaultProxy(host="127.0.0.1", port=echo_port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        proxy.freeze()
        writer.write(b"two")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(3), 0.05)
        proxy.heal()
        assert await asyncio.wait_for(reader.readexactly(3), 5) == b"two"
        await close(writer)


async def test_a_cut_ends_connections_and_refuses_new_ones(echo_port: int) -> None:
    async with FaultProxy(host="127.0.0.1", port=echo_port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"one")
        await reader.readexactly(3)
        await proxy.cut()
        with pytest.raises(OSError):
            await asyncio.wait_for(reader.readexactly(1), 5)
        await close(writer)
        second, second_writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(second.readexactly(1), 5)
        await close(second_writer)


async def test_swallowed_connections_stay_open_and_silent_while_new_ones_work(echo_port: int) -> None:
    async with FaultProxy(host="127.0.0.1", port=echo_port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        proxy.swallow()
        proxy.heal()
        # More than socket buffers hold: it is read, not only buffered.
        writer.write(b"2" * 8_000_000)
        async with asyncio.timeout(10):
            await writer.drain()
        fresh, fresh_writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        fresh_writer.write(b"two")
        assert await asyncio.wait_for(fresh.readexactly(3), 5) == b"two"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        await close(writer)
        await close(fresh_writer)
