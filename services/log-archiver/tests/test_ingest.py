"""Append over real mTLS into a real PostgreSQL: what is stored, once, and what is refused."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import zstandard

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.incarnation_key import hash_key
from toban_observability import metrics
from toban_proto.v1 import logs_pb2, logs_pb2_grpc
from toban_proto.v1.common_pb2 import LogTicket
from toban_stack import certs
from toban_stack.wait import wait_until
from toban_testing.admin_port import ask
from toban_transport.client_calls import duplex
from toban_transport.log_ticket import TicketHolder

Request = logs_pb2.AppendRequest


def codes(answers: list[logs_pb2.AppendResponse]) -> list[tuple[int, str]]:
    return [(refusal.seq_from, refusal.code) for answer in answers for refusal in answer.refusals]


def rows(url: str, table: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute(f"SELECT count(*) FROM logs.{table}").fetchone()
    assert found is not None
    return int(found[0])


async def test_chunks_are_stored_and_counted(archiver: Any) -> None:
    await archiver.store(1, 10, archiver.chunk(1, 10, [1, 2, 4]), archiver.chunk(1, 10, [3], stream=2), seal=4)
    (found,) = await archiver.describe(1)
    assert (found.token, found.lines, found.last_seq, found.sealed, found.place) == (10, 4, 4, True, "db")
    assert found.raw_bytes == 4 * len(b"line 1\n")
    assert await archiver.lines(1) == [(10, seq) for seq in (1, 2, 3, 4)]


async def test_requests_are_acknowledged_in_order(archiver: Any) -> None:
    requests = [
        Request(tickets=[archiver.ticket(1, 10)], chunks=[archiver.chunk(1, 10, [seq])]) for seq in range(1, 101)
    ]
    answers = await archiver.append(*requests)
    assert [answer.request_id for answer in answers] == list(range(1, 101))
    assert len(await archiver.lines(1)) == 100


async def test_a_chunk_sent_twice_is_stored_once(archiver: Any, pg_url: str) -> None:
    one = archiver.chunk(1, 10, [1, 2])
    for _ in range(2):
        await archiver.store(1, 10, one, one, seal=2)
    assert (rows(pg_url, "chunks"), rows(pg_url, "tokens")) == (1, 1)
    assert await archiver.lines(1) == [(10, 1), (10, 2)]


async def test_a_connection_killed_before_the_answer_and_everything_sent_again(archiver: Any) -> None:
    requests = [
        Request(request_id=n, tickets=[archiver.ticket(1, 10)], chunks=[archiver.chunk(1, 10, [n])])
        for n in range(1, 51)
    ]
    acknowledged = asyncio.Event()

    async def send() -> AsyncIterator[Request]:
        for request in requests:
            yield request
        await asyncio.Event().wait()

    async def first() -> None:
        stub = logs_pb2_grpc.LogIngestStub(archiver.channel("executor"))
        async for _ in duplex(stub.Append, send(), timeout=60):
            acknowledged.set()

    task = asyncio.create_task(first())
    await acknowledged.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert codes(await archiver.append(*requests)) == []
    assert await archiver.lines(1) == [(10, n) for n in range(1, 51)]


async def test_two_archivers_take_the_same_chunks_at_once(archiver: Any, second_archiver: Any, pg_url: str) -> None:
    requests = [
        Request(tickets=[archiver.ticket(n % 7 + 1, 10)], chunks=[archiver.chunk(n % 7 + 1, 10, [n])])
        for n in range(1, 201)
    ]
    answers = await asyncio.gather(archiver.append(*requests), second_archiver.append(*reversed(requests)))
    assert [codes(answer) for answer in answers] == [[], []]
    assert (rows(pg_url, "chunks"), rows(pg_url, "tokens")) == (200, 7)


async def test_a_chunk_without_a_ticket_is_refused_and_the_rest_is_stored(archiver: Any) -> None:
    good, other = archiver.chunk(1, 10, [1]), archiver.chunk(2, 11, [7])
    answers = await archiver.append(Request(tickets=[archiver.ticket(1, 10)], chunks=[other, good]))
    assert codes(answers) == [(7, "TICKET_MISSING")]
    assert answers[0].refusals[0].key.run_id == 2
    assert await archiver.lines(1) == [(10, 1)]


async def test_a_ticket_is_for_its_own_stream_only(archiver: Any) -> None:
    await archiver.store(1, 10, archiver.chunk(1, 10, [1]))
    answers = await archiver.append(Request(chunks=[archiver.chunk(1, 10, [2])]))
    assert codes(answers) == [(2, "TICKET_MISSING")]


async def test_forged_tickets_are_refused(archiver: Any, pg_url: str) -> None:
    good = archiver.ticket(1, 10)
    other_run = archiver.ticket(2, 10)
    forged = [
        archiver.ticket(1, 10, signer="executor"),
        LogTicket(body=good.body, signature=other_run.signature, certificate=good.certificate),
        LogTicket(body=good.body, signature=good.signature[:-1], certificate=good.certificate),
        LogTicket(body=b"\xff\xff", signature=b"x", certificate=b"y"),
        LogTicket(),
    ]
    for ticket in forged:
        answers = await archiver.append(Request(tickets=[ticket], chunks=[archiver.chunk(1, 10, [1])]))
        assert codes(answers) == [(1, "TICKET_INVALID")]
    answers = await archiver.append(Request(tickets=[other_run], chunks=[archiver.chunk(1, 10, [1])]))
    assert codes(answers) == [(1, "TICKET_MISSING")]
    assert rows(pg_url, "chunks") == 0


async def test_bad_chunks_are_refused_one_by_one(archiver: Any) -> None:
    chunk = archiver.chunk
    bad = [
        chunk(1, 10, [1], seq_from=2, seq_to=2),
        chunk(1, 10, [3, 4], line_count=1),
        chunk(1, 10, [5], data=archiver.frame([5], stream=2)),
        chunk(1, 10, [6], data=b"rubbish"),
        chunk(1, 10, [7], data=zstandard.compress(b"\0" * (1 << 26))),
        chunk(1, 10, [8], stream=0),
    ]
    answers = await archiver.append(Request(tickets=[archiver.ticket(1, 10)], chunks=[*bad, chunk(1, 10, [9])]))
    assert codes(answers) == [(n, "CHUNK_INVALID") for n in (2, 3, 5, 6, 7, 8)]
    assert await archiver.lines(1) == [(10, 9)]


@pytest.mark.parametrize("together", [True, False])
async def test_another_chunk_at_the_same_place_is_refused(archiver: Any, together: bool) -> None:
    short, long = archiver.chunk(1, 10, [1, 2]), archiver.chunk(1, 10, [1, 2, 3])
    ticket = archiver.ticket(1, 10)
    parts = [[short, long]] if together else [[short], [long]]
    answers = await archiver.append(*(Request(tickets=[ticket], chunks=part) for part in parts))
    assert set(codes(answers)) == {(1, "CHUNK_INVALID")}
    assert await archiver.lines(1) == [(10, 1), (10, 2)]


async def test_a_day_without_partition_is_made_near_today_only(archiver: Any) -> None:
    near, far = archiver.today - timedelta(days=20), archiver.today - timedelta(days=400)
    answers = await archiver.append(
        Request(
            tickets=[archiver.ticket(1, 10, day=near), archiver.ticket(2, 11, day=far)],
            chunks=[archiver.chunk(1, 10, [1]), archiver.chunk(2, 11, [2])],
        )
    )
    assert codes(answers) == [(2, "TICKET_INVALID")]
    assert await archiver.lines(1) == [(10, 1)]


async def test_only_executors_append(archiver: Any) -> None:
    async def nothing() -> AsyncIterator[Request]:
        yield Request()

    stub = logs_pb2_grpc.LogIngestStub(archiver.channel("admin-cli"))
    with pytest.raises(TobanError) as caught:
        async for _ in duplex(stub.Append, nothing(), timeout=60):
            pass
    assert caught.value.code is ErrorCode.PERMISSION_DENIED


async def test_many_streams_share_commits(archiver: Any, pg_url: str) -> None:
    commits = "toban_log_commit_seconds_count"
    before = metrics.REGISTRY.get_sample_value(commits) or 0.0

    async def executor(number: int) -> None:
        token = 100 + number
        requests = [
            Request(tickets=[archiver.ticket(number, token)], chunks=[archiver.chunk(number, token, [seq])])
            for seq in range(1, 41)
        ]
        assert codes(await archiver.append(*requests)) == []

    await asyncio.gather(*(executor(number) for number in range(1, 11)))
    assert rows(pg_url, "chunks") == 400
    assert (metrics.REGISTRY.get_sample_value(commits) or 0.0) - before < 200


async def test_postgresql_away_for_a_moment_loses_nothing(archiver: Any, pg_url: str) -> None:
    await archiver.store(1, 10, archiver.chunk(1, 10, [1]))
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    await archiver.store(1, 10, archiver.chunk(1, 10, [2]), seal=2)
    assert await archiver.lines(1) == [(10, 1), (10, 2)]


def get(port: int, path: str) -> tuple[int, str]:
    return ask(f"127.0.0.1:{port}", path)


async def test_the_admin_port_tells_health(archiver: Any) -> None:
    port = archiver.admin_port
    assert await asyncio.to_thread(wait_until, lambda: get(port, "/readyz")[0] == 200, 10)
    _, document = await asyncio.to_thread(get, port, "/healthz")
    assert '"status": "warning"' in document
    assert "nothing is archived: set SCHEDULER_S3_BUCKET" in document
    assert "toban_log_chunks_total" in (await asyncio.to_thread(get, port, "/metrics"))[1]


@pytest.mark.parametrize(
    ("key", "caller", "refused"),
    [
        ("the key", "executor-pci", False),
        # As a job that has read tickets in the journal of its executor would send them.
        ("", "executor-pci", True),
        ("another key", "executor-pci", True),
        ("the key", "executor", True),
        ("the key", "executor-web", True),
    ],
)
async def test_a_stolen_ticket_writes_nothing(archiver: Any, pg_url: str, key: str, caller: str, refused: bool) -> None:
    for group in ("pci", "web"):
        certs.issue(archiver.tls / "ca", f"executor/{group}", archiver.tls / f"executor-{group}")
    ticket = archiver.ticket(1, 10, holder=TicketHolder(key_hash=hash_key("the key"), group="pci"))
    seal = logs_pb2.Seal(run_id=1, token=10, last_seq=1)
    request = Request(tickets=[ticket], chunks=[archiver.chunk(1, 10, [1])], seals=[seal])
    answers = await archiver.append(request, key=key, caller=caller)
    assert codes(answers) == ([(1, "TICKET_INVALID"), (0, "TICKET_INVALID")] if refused else [])
    assert (rows(pg_url, "chunks"), rows(pg_url, "tokens")) == ((0, 0) if refused else (1, 1))
