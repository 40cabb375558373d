"""The state of the archive, asked of log-archivers over real mTLS: people share one call and its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toban_coordinator.adapters.archivers import KEPT_SECONDS, MOST_BROKEN, VERIFY_SECONDS, Archivers
from toban_coordinator.app.cluster.audit_log import list_audit
from toban_coordinator.app.cluster.operations_archive import ArchiveOperations
from toban_coordinator.app.paging import PageRequest
from toban_coordinator.server.cluster_to_proto import archive_check_to_pb
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import logs_pb2, logs_pb2_grpc
from toban_runtime.clock import SystemClock
from toban_testing.clock import FakeClock
from toban_transport.channel import ChannelPool
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles

DOMAIN = "toban.internal"


class Archive(logs_pb2_grpc.LogArchiveServicer):
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.failure: TobanError | None = None
        self.asked: list[Any] = []
        self.objects, self.slow, self.broken = 3, 0, range(2, 3)
        self.look: Callable[[], Awaitable[Any]]

    async def Status(self, _request: Any, _context: Any) -> Any:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return logs_pb2.ArchiveStatusResponse(retention_days=self.calls)

    async def RunArchive(self, request: Any, _context: Any) -> AsyncIterator[Any]:
        self.asked.append(request)
        self.seen = await self.look()
        if self.failure is not None:
            raise self.failure
        for one in ():
            yield one

    async def Verify(self, request: Any, _context: Any) -> AsyncIterator[Any]:
        self.asked.append(request)
        for number in range(request.after + 1, self.objects + 1):
            if number == self.slow:
                raise TobanError(ErrorCode.DEADLINE_EXCEEDED, "too slow")
            yield logs_pb2.VerifyArchiveResponse(
                number=number, key=f"k{number}", chunks=2, bytes=9, problem="gone" * (number in self.broken)
            )


class Ticking(FakeClock):
    """Each look takes half of the time of a part."""

    looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks * VERIFY_SECONDS / 2


@pytest.fixture
async def served(tls: Path) -> AsyncIterator[tuple[Archive, str]]:
    server = build_server(tls=TlsFiles(tls / "log-archiver"), trust_domain=DOMAIN, clock=SystemClock())
    archive = Archive()
    server.add(logs_pb2_grpc.add_LogArchiveServicer_to_server, archive)
    port = await server.start("127.0.0.1", 0)
    yield archive, f"127.0.0.1:{port}"
    await server.stop(0)


@pytest.fixture
async def channels(tls: Path) -> AsyncIterator[ChannelPool]:
    pool = ChannelPool(tls=TlsFiles(tls / "coordinator"), trust_domain=DOMAIN)
    yield pool
    await pool.close()


async def test_an_answer_is_kept_for_a_while(served: Any, channels: Any) -> None:
    _, address = served
    clock = FakeClock()
    archivers = Archivers(channels=channels, addresses=[address], clock=clock)
    assert [(await archivers.status()).retention_days for _ in range(3)] == [1, 1, 1]
    await clock.advance(KEPT_SECONDS)
    assert (await archivers.status()).retention_days == 2


async def test_a_refusal_of_the_coordinator_is_none_of_the_person(served: Any, channels: Any) -> None:
    archive, address = served
    archive.failure = TobanError(ErrorCode.PERMISSION_DENIED, "service 'coordinator' may not call it")
    with pytest.raises(TobanError, match="release before refuse it: service 'coordinator' may not") as refusal:
        await Archivers(channels=channels, addresses=[address], clock=FakeClock()).status()
    assert refusal.value.code is ErrorCode.UNAVAILABLE


async def test_a_pass_is_noted_before_it_begins(served: Any, channels: Any, pool: Any) -> None:
    archive, address = served
    calls = Archivers(channels=channels, addresses=[address], clock=FakeClock())
    work = ArchiveOperations(pool=pool, archivers=calls)
    archive.look = lambda: noted(pool)
    await work.run(reason="disk is full", actor="user ada")
    assert archive.seen == [("run_archive", "archive", "disk is full")], "PostgreSQL ends a transaction that waits"
    assert [one.background for one in archive.asked] == [True]
    archive.failure = TobanError(ErrorCode.RESOURCE_INVALID_STATE, "no object store")
    with pytest.raises(TobanError, match="no object store"):
        await work.run(reason="again", actor="user ada")
    assert await noted(pool) == [("run_archive", "archive", reason) for reason in ("again", "disk is full")]


async def test_a_check_has_as_much_of_a_day_as_its_time_allows(served: Any, channels: Any, pool: Any) -> None:
    archive, address = served
    calls = Archivers(channels=channels, addresses=[address], clock=Ticking())
    work = ArchiveOperations(pool=pool, archivers=calls)
    first = archive_check_to_pb(await work.verify("2026-11-20", cursor="", reason="drill", actor="user ada"))
    assert (first.objects, first.chunks, first.bytes, first.next_cursor) == (2, 4, 18, "2")
    assert [(one.key, one.problem) for one in first.broken] == [("k2", "gone")]
    rest = archive_check_to_pb(await work.verify("2026-11-20", cursor="2", reason="drill", actor="user ada"))
    assert (rest.objects, rest.next_cursor, list(rest.broken)) == (1, "", [])
    assert [(one.log_day, one.after) for one in archive.asked] == [("2026-11-20", 0), ("2026-11-20", 2)]
    assert await noted(pool) == [("verify_archive", "archive of 2026-11-20", "drill")] * 2


async def test_a_part_keeps_what_it_has_read_when_an_object_takes_too_long(served: Any, channels: Any) -> None:
    archive, address = served
    calls = Archivers(channels=channels, addresses=[address], clock=FakeClock())
    archive.slow = 3
    part = await calls.verify("2026-11-20", after=0)
    assert [one.number for one in part.objects] == [1, 2] and part.more
    with pytest.raises(TobanError, match="too slow"):
        await calls.verify("2026-11-20", after=2)


async def test_a_part_ends_when_there_is_no_room_for_more_broken_objects(served: Any, channels: Any) -> None:
    archive, address = served
    calls = Archivers(channels=channels, addresses=[address], clock=FakeClock())
    archive.objects, archive.broken = 2 * MOST_BROKEN, range(11, 2 * MOST_BROKEN)
    first = archive_check_to_pb(await calls.verify("2026-11-20", after=0))
    assert (len(first.broken), first.objects, first.next_cursor) == (MOST_BROKEN, 110, "110")
    rest = archive_check_to_pb(await calls.verify("2026-11-20", after=110))
    assert (len(rest.broken), rest.objects, rest.next_cursor) == (89, 90, "")


async def test_a_check_of_what_is_no_day_is_refused_before_it_is_noted(served: Any, channels: Any, pool: Any) -> None:
    archive, address = served
    calls = Archivers(channels=channels, addresses=[address], clock=FakeClock())
    work = ArchiveOperations(pool=pool, archivers=calls)
    for log_day, cursor, remedy in (
        ("", "", "'' is no date: write the day as YYYY-MM-DD"),
        ("not a day", "", "'not a day' is no date"),
        ("2026-02-30" * 10_000, "", "is no date"),
        ("2026-11-20", "x", "begin without one"),
    ):
        with pytest.raises(TobanError, match=remedy) as refusal:
            await work.verify(log_day, cursor=cursor, reason="drill", actor="user ada")
        assert refusal.value.code is ErrorCode.INVALID_ARGUMENT and len(refusal.value.message) < 200
    assert archive.asked == [] and await noted(pool) == []
    await work.verify("20261120", cursor="", reason="drill", actor="user ada")
    assert [one[1] for one in await noted(pool)] == ["archive of 2026-11-20"], "one day has one name in the audit"


async def noted(pool: Any) -> list[tuple[str, str, str]]:
    """Action, target and reason of each audited change."""
    rows = (await list_audit(pool, PageRequest())).rows
    return [(row["action"], row["target"], row["reason"]) for row in rows]


async def test_a_coordinator_that_knows_no_log_archiver_names_the_setting(channels: Any) -> None:
    archivers = Archivers(channels=channels, addresses=[], clock=FakeClock())
    with pytest.raises(TobanError, match="SCHEDULER_LOG_ARCHIVERS") as refusal:
        await archivers.status()
    assert refusal.value.code is ErrorCode.UNAVAILABLE
