"""Lines of external workers on their way to log-archivers, over real mTLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import zstandard

from toban_coordinator.adapters.claim_logs import ClaimLogCalls
from toban_coordinator.ports.claim_logs import LogPlace
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.log_block import STDERR, STDOUT, LogBlock
from toban_domain.outcome import AttemptKey
from toban_proto.v1 import logs_pb2, logs_pb2_grpc
from toban_proto.v1.common_pb2 import LogTicketBody
from toban_runtime.clock import SystemClock
from toban_testing.waiting import until
from toban_transport.channel import ChannelPool
from toban_transport.convert import key_to_pb
from toban_transport.log_ticket import TicketSigner
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles

DOMAIN = "toban.internal"
PLACE = LogPlace(AttemptKey(7, 9), date(2026, 1, 2))


class Ingest(logs_pb2_grpc.LogIngestServicer):
    """Keeps requests; `refusal` is the code and the text of its answer."""

    def __init__(self) -> None:
        self.seen: list[logs_pb2.AppendRequest] = []
        self.refusal = ("", "")

    async def Append(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        async for request in request_iterator:
            self.seen.append(request)
            code, message = self.refusal
            refused = [logs_pb2.ChunkRefusal(key=key_to_pb(PLACE.key), seq_from=1, code=code, message=message)]
            yield logs_pb2.AppendResponse(request_id=request.request_id, refusals=refused if code else [])


@pytest.fixture
async def ingest(tls: Path) -> AsyncIterator[tuple[Ingest, ClaimLogCalls]]:
    server = build_server(tls=TlsFiles(tls / "log-archiver"), trust_domain=DOMAIN, clock=SystemClock())
    servicer = Ingest()
    server.add(logs_pb2_grpc.add_LogIngestServicer_to_server, servicer)
    port = await server.start("127.0.0.1", 0)
    channels = ChannelPool(tls=TlsFiles(tls / "coordinator"), trust_domain=DOMAIN)
    calls = ClaimLogCalls(
        channels=channels,
        # The first one does not answer.
        addresses=["127.0.0.1:1", f"127.0.0.1:{port}"],
        clock=SystemClock(),
        signer=TicketSigner(TlsFiles(tls / "coordinator")),
    )
    yield servicer, calls
    await channels.close()
    await server.stop(0)


def block(stream: int, seq: int, *texts: str) -> LogBlock:
    text = "".join(f"{one}\n" for one in texts).encode()
    return LogBlock(stream, partial=False, at_ns=5, seq_from=seq, lines=len(texts), text=text)


async def test_lines_go_as_chunks_of_each_stream_with_a_ticket(ingest: tuple[Ingest, ClaimLogCalls]) -> None:
    servicer, calls = ingest
    await calls.append(PLACE, [block(STDOUT, 1, "a", "level=warn b"), block(STDERR, 3, "c"), block(STDOUT, 4, "d")])
    (request,) = servicer.seen
    body = LogTicketBody.FromString(request.tickets[0].body)
    assert (body.run_id, body.token, body.log_day) == (7, 9, "2026-01-02")
    assert [(c.run_id, c.token, c.stream, c.seq_from, c.seq_to, c.line_count) for c in request.chunks] == [
        (7, 9, STDOUT, 1, 4, 3),
        (7, 9, STDERR, 3, 3, 1),
    ]
    lines = logs_pb2.LogLines.FromString(zstandard.decompress(request.chunks[0].data))
    assert [(one.seq, one.text, one.levels) for one in lines.blocks] == [
        (1, b"a\nlevel=warn b\n", b"\0\4"),
        (4, b"d\n", b""),
    ]


@pytest.mark.parametrize(
    ("code", "expected"), [("CHUNK_INVALID", ErrorCode.CONFLICT), ("TICKET_INVALID", ErrorCode.UNAVAILABLE)]
)
async def test_a_refusal_is_an_error(ingest: tuple[Ingest, ClaimLogCalls], code: str, expected: ErrorCode) -> None:
    servicer, calls = ingest
    servicer.refusal = (code, "why it is so")
    with pytest.raises(TobanError, match="why it is so") as caught:
        await calls.append(PLACE, [block(STDOUT, 1, "a")])
    assert caught.value.code is expected


async def test_a_seal_is_sent_in_the_background(ingest: tuple[Ingest, ClaimLogCalls]) -> None:
    servicer, calls = ingest
    calls.seal(PLACE, 4)
    (request,) = await until(lambda: servicer.seen)
    assert [(one.run_id, one.token, one.last_seq) for one in request.seals] == [(7, 9, 4)]
