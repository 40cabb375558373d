"""A log-archiver gives output only for a read ticket: none, forged, expired, for another run, of another installation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_log_archiver.server.read_ticket_check import ReadTicketCheck
from toban_observability.context import Caller
from toban_proto.v1 import logs_pb2, logs_pb2_grpc
from toban_proto.v1.common_pb2 import ReadTicket
from toban_stack import certs
from toban_testing.clock import FakeClock
from toban_transport.client_calls import stream, unary
from toban_transport.person_rules import BY_TICKET
from toban_transport.read_ticket import LEEWAY, LIFETIME, ReadTicketSigner, ReadTicketVerifier
from toban_transport.tls import TlsFiles

READ = "/toban_proto.v1.LogReader/Read"
Call = Callable[[ReadTicket | None], Any]


def calls(archiver: Any, run_id: int) -> dict[str, Call]:
    """Each method of LogReader, about one run."""
    stub = logs_pb2_grpc.LogReaderStub(archiver.channel("admin-cli"))

    async def read(ticket: ReadTicket | None) -> list[int]:
        request = logs_pb2.ReadLogRequest(run_id=run_id, ticket=ticket)
        return [line.seq async for answer in stream(stub.Read, request, timeout=60) for line in answer.lines]

    async def describe(ticket: ReadTicket | None) -> list[int]:
        request = logs_pb2.DescribeLogRequest(run_id=run_id, ticket=ticket)
        return [one.last_seq for one in (await unary(stub.Describe, request, timeout=60)).attempts]

    async def search(ticket: ReadTicket | None) -> list[int]:
        request = logs_pb2.SearchLogRequest(run_ids=[run_id], ticket=ticket)
        return [hit.line.seq async for answer in stream(stub.Search, request, timeout=60) for hit in answer.hits]

    return {"Read": read, "Describe": describe, "Search": search}


async def code_of(work: Any) -> ErrorCode:
    with pytest.raises(TobanError) as caught:
        await work
    return caught.value.code


def test_every_method_of_log_reader_needs_one() -> None:
    methods = logs_pb2.DESCRIPTOR.services_by_name["LogReader"].methods
    assert {f"/toban_proto.v1.LogReader/{method.name}" for method in methods} == BY_TICKET
    assert all("ticket" in method.input_type.fields_by_name for method in methods)


@pytest.mark.parametrize("method", ["Read", "Describe", "Search"])
async def test_only_a_good_ticket_for_the_run_opens_its_output(archiver: Any, tmp_path: Path, method: str) -> None:
    await archiver.store(1, 11, archiver.chunk(1, 11, [1, 2, 3]), seal=3)
    call = calls(archiver, 1)[method]
    assert await call(archiver.read_ticket(1))
    assert await call(archiver.read_ticket(5, 1))
    assert await code_of(call(None)) is ErrorCode.TICKET_MISSING
    assert await code_of(call(ReadTicket())) is ErrorCode.TICKET_INVALID
    assert await code_of(call(archiver.read_ticket(2))) is ErrorCode.PERMISSION_DENIED
    old = archiver.read_ticket(1, age=LIFETIME + LEEWAY + timedelta(seconds=60))
    assert await code_of(call(old)) is ErrorCode.TICKET_EXPIRED
    assert await code_of(call(archiver.read_ticket(1, signer="admin-cli"))) is ErrorCode.TICKET_INVALID
    foreign = certs.make_all(tmp_path / "foreign")
    assert await code_of(call(archiver.read_ticket(1, tls=foreign))) is ErrorCode.TICKET_INVALID


async def test_a_search_is_refused_when_one_of_its_runs_is_not_on_the_ticket(archiver: Any) -> None:
    stub = logs_pb2_grpc.LogReaderStub(archiver.channel("admin-cli"))
    request = logs_pb2.SearchLogRequest(run_ids=[1, 2], ticket=archiver.read_ticket(1))

    async def search() -> None:
        async for _ in stream(stub.Search, request, timeout=60):
            pass

    assert await code_of(search()) is ErrorCode.PERMISSION_DENIED


async def test_a_ticket_is_good_at_every_log_archiver(archiver: Any, second_archiver: Any) -> None:
    await archiver.store(1, 11, archiver.chunk(1, 11, [1, 2, 3]), seal=3)
    ticket = archiver.read_ticket(1)
    for one in (archiver, second_archiver):
        assert await calls(one, 1)["Read"](ticket) == [1, 2, 3]


async def test_a_follower_continues_after_its_ticket_with_another_one(archiver: Any, moved_clock: Any) -> None:
    """The stream ends soon after the ticket; what it has sent is not sent again."""
    seen: list[int] = []

    async def follow(answers: AsyncIterator[logs_pb2.ReadLogResponse]) -> None:
        async for answer in answers:
            seen.extend(line.seq for line in answer.lines)
            if seen[-1] == 3:
                moved_clock.ahead = LIFETIME + LEEWAY + timedelta(seconds=1)

    await archiver.store(1, 11, archiver.chunk(1, 11, [1, 2, 3]))
    assert await code_of(follow(archiver.read(1, follow=True))) is ErrorCode.TICKET_EXPIRED
    assert seen == [1, 2, 3]
    await archiver.store(1, 11, archiver.chunk(1, 11, [4, 5]), seal=5)
    further = archiver.read_ticket(1, age=-moved_clock.ahead)
    await follow(archiver.read(1, follow=True, after=logs_pb2.LogPosition(token=11, seq=3), ticket=further))
    assert seen == [1, 2, 3, 4, 5]


async def test_a_read_of_what_is_stored_may_outlast_its_ticket(tls: Path) -> None:
    clock = FakeClock()
    verifier = ReadTicketVerifier(TlsFiles(tls / "log-archiver"), "toban.internal")
    check = ReadTicketCheck(verifier=verifier, clock=clock)
    signer = ReadTicketSigner(TlsFiles(tls / "coordinator"))
    ticket = signer.sign(actor="user ada", run_ids=[1], now=clock.wall())
    admitted = {
        follow: await check.admit(
            READ,
            caller=Caller("127.0.0.1", "admin-cli"),
            about=partial(logs_pb2.ReadLogRequest, run_id=1, follow=follow, ticket=ticket),
            given={},
        )
        for follow in (False, True)
    }
    assert [one.actor for one in admitted.values() if one is not None] == ["user ada"] * 2
    await clock.advance((LIFETIME + LEEWAY).total_seconds() + 1)
    assert admitted[False] is not None and admitted[True] is not None
    await admitted[False].recheck()
    assert await code_of(admitted[True].recheck()) is ErrorCode.TICKET_EXPIRED


async def test_other_methods_need_none(tls: Path) -> None:
    check = ReadTicketCheck(
        verifier=ReadTicketVerifier(TlsFiles(tls / "log-archiver"), "toban.internal"), clock=FakeClock()
    )
    for method in ("LogIngest/Append", "LogArchive/Status"):
        assert (
            await check.admit(
                f"/toban_proto.v1.{method}", caller=Caller("127.0.0.1", "executor"), about=lambda: None, given={}
            )
            is None
        )
