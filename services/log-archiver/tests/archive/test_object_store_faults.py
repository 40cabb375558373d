"""The object store fails in every way that it knows: the rows stay, the lines stay readable, and the next pass completes the work."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_log_archiver.ports.object_store import Digest
from toban_observability import metrics
from toban_testing.proxy import FaultProxy

LINES = list(range(1, 60))


@pytest.fixture
async def filled(world: Any) -> Any:
    await world.store(1, 10, LINES, seal=LINES[-1])
    return world


class Front:
    """The real bucket behind faults: each is a method of the port that a test replaces."""

    def __init__(self, real: Any, **faults: Any) -> None:
        self._real = real
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return self._faults.get(name) or getattr(self._real, name)


class Http:
    """An HTTP server in front of S3: `answer` decides by method and count what is said in place of S3; None lets the request through."""

    def __init__(self, host: str, port: int, answer: Callable[[str, int], bytes | None]) -> None:
        self._target = (host, port)
        self._answer = answer
        self._counts: dict[str, int] = {}
        self.url = ""

    async def __aenter__(self) -> "Http":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method = head.split(b" ", 1)[0].decode()
        self._counts[method] = self._counts.get(method, 0) + 1
        said = self._answer(method, self._counts[method])
        if said is not None:
            if b"100-continue" not in head.lower() and b"content-length:" in head.lower():
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
            writer.write(said)
            await writer.drain()
            writer.close()
            return
        up_reader, up_writer = await asyncio.open_connection(*self._target)
        # One request a connection, so that the next one is decided on too.
        up_writer.write(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while piece := await source.read(65_536):
                sink.write(piece)
                await sink.drain()

        sending = asyncio.create_task(pump(reader, up_writer))
        await pump(up_reader, writer)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        for sink in (writer, up_writer):
            sink.close()


def http_error(status: str, code: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>made up</Message></Error>".encode()
    return (f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n").encode() + body


TRUNCATED = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\nConnection: close\r\n\r\nonly this"


def failures(kind: str) -> float:
    found = metrics.samples("toban_archive_failures_total")
    return sum(value for labels, value in found if labels.get("kind") == kind)


async def check_rows_stay(world: Any) -> None:
    assert await world.has_day()
    assert await world.sql("SELECT 1 FROM logs.manifests") == []
    assert await world.read(1) == world.wanted(1, 10, LINES)


async def check_completed(world: Any) -> None:
    await world.work()
    assert not await world.has_day()
    assert await world.read(1) == world.wanted(1, 10, LINES)
    (row,) = await world.sql("SELECT last_error FROM logs.archive_lease")
    assert row["last_error"] == ""


async def broken_pass(world: Any, store: Any) -> str:
    """A pass that an outage ends; what the lease says of it."""
    archiver = world.archiver(store=store, target_bytes=1 << 20)
    with pytest.raises(TobanError) as caught:
        await archiver.run_pass()
    assert caught.value.code in (ErrorCode.UNAVAILABLE, ErrorCode.CONFLICT)
    (row,) = await world.sql("SELECT held, last_error FROM logs.archive_lease")
    assert not row["held"], "it gave the lease back"
    assert row["last_error"] == archiver.problem == caught.value.message
    return str(row["last_error"])


@pytest.fixture
async def proxied(filled: Any, s3: Any, bucket_at: Any) -> AsyncIterator[tuple[FaultProxy, Any]]:
    host, port = s3.s3_endpoint_url.removeprefix("http://").split(":")
    async with FaultProxy(host=host, port=int(port)) as proxy:
        bucket = bucket_at(filled.bucket_name, endpoint_url=f"http://{proxy.address}", data_seconds=1.0)
        yield proxy, bucket


async def test_refused(filled: Any, proxied: Any) -> None:
    proxy, bucket = proxied
    await proxy.cut()
    before = failures("unavailable")
    assert "does not put" in await broken_pass(filled, bucket)
    assert failures("unavailable") == before + 1
    await check_rows_stay(filled)
    # Rows that are in the database are read from there, also those that the archive has already.
    assert await filled.read(1, store=bucket) == filled.wanted(1, 10, LINES)
    proxy.heal()
    await check_completed(filled)


async def test_silent(filled: Any, proxied: Any) -> None:
    proxy, bucket = proxied
    proxy.freeze()
    await broken_pass(filled, bucket)
    await check_rows_stay(filled)
    proxy.heal()
    await check_completed(filled)


async def test_slow_is_waited_for(filled: Any, proxied: Any) -> None:
    proxy, bucket = proxied
    proxy.delay(0.1)
    did = await filled.work(store=bucket)
    assert [one.action for one in did][-1] == "dropped"
    assert await filled.read(1, store=bucket) == filled.wanted(1, 10, LINES)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("PUT", http_error("500 Internal Server Error", "InternalError")),
        ("PUT", http_error("503 Slow Down", "SlowDown")),
        ("PUT", http_error("403 Forbidden", "AccessDenied")),
        ("PUT", http_error("409 Conflict", "ConditionalRequestConflict")),
        ("GET", http_error("503 Slow Down", "SlowDown")),
        ("GET", TRUNCATED),
    ],
    ids=["put 500", "put 503", "put 403", "put 409 for ever", "read back 503", "read back truncated"],
)
async def test_answers_that_fail(filled: Any, s3: Any, bucket_at: Any, method: str, said: bytes) -> None:
    host, port = s3.s3_endpoint_url.removeprefix("http://").split(":")
    async with Http(host, int(port), lambda name, _: said if name == method else None) as front:
        await broken_pass(filled, bucket_at(filled.bucket_name, endpoint_url=front.url))
    await check_rows_stay(filled)
    await check_completed(filled)


async def test_a_conflict_that_passes_is_tried_again(filled: Any, s3: Any, bucket_at: Any) -> None:
    host, port = s3.s3_endpoint_url.removeprefix("http://").split(":")
    said = http_error("409 Conflict", "ConditionalRequestConflict")
    async with Http(host, int(port), lambda name, n: said if (name, n) == ("PUT", 1) else None) as front:
        did = await filled.work(store=bucket_at(filled.bucket_name, endpoint_url=front.url), target_bytes=1 << 20)
    assert [one.action for one in did] == ["archived", "dropped"]
    assert await filled.read(1) == filled.wanted(1, 10, LINES)


async def test_a_name_that_other_content_has(filled: Any) -> None:
    """412, and what is there is not ours: the rows stay, the other attempts go on, and it heals when the object is removed."""
    await filled.store(2, 10, [1, 2, 3], seal=3)
    foreign: list[str] = []

    async def taken_before(key: str, body: bytes) -> bool:
        if not foreign:
            foreign.append(key)
            assert await filled.bucket.put_new(key, b"something else")
        return bool(await filled.bucket.put_new(key, body))

    before = failures("differs")
    archiver = filled.archiver(store=Front(filled.bucket, put_new=taken_before), target_bytes=600)
    did: list[Any] = []
    await archiver.run_pass(did.append)
    assert [one.action for one in did if one.action != "archived"] == ["failed"]
    assert len([one for one in did if one.action == "archived"]) > 0
    assert failures("differs") == before + 1
    assert "is not what was archived" in archiver.problem
    assert "remove the object" in archiver.problem
    assert await filled.has_day()
    assert await filled.read(1) == filled.wanted(1, 10, LINES)
    filled.remove(foreign[0])
    await check_completed(filled)


async def test_a_wrong_checksum_on_reading_back(filled: Any) -> None:
    async def other(key: str) -> Digest:
        found = await filled.bucket.digest(key)
        assert found is not None
        return Digest(found.length, bytes(32))

    did = await filled.work(store=Front(filled.bucket, digest=other), target_bytes=1 << 20)
    assert [one.action for one in did] == ["failed"]
    await check_rows_stay(filled)
    await check_completed(filled)


async def test_an_object_that_is_not_there_after_all(filled: Any) -> None:
    async def pretend(key: str, body: bytes) -> bool:
        return True

    assert "is not there when it is read back" in await broken_pass(filled, Front(filled.bucket, put_new=pretend))
    await check_rows_stay(filled)
    await check_completed(filled)


async def test_a_damaged_object_is_never_read_as_lines(filled: Any) -> None:
    await filled.work()

    async def flipped(key: str, offset: int, length: int) -> bytes:
        data = bytearray(await filled.bucket.read(key, offset, length))
        data[length // 2] ^= 1
        return bytes(data)

    with pytest.raises(TobanError, match="the archive is damaged"):
        await filled.read(1, store=Front(filled.bucket, read=flipped))
    assert await filled.read(1) == filled.wanted(1, 10, LINES)
