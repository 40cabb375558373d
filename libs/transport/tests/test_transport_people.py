"""The server's part of persons: who is asked, the actor in the handler, answers made smaller, streams that end with the right to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_runtime.clock import SystemClock
from toban_transport import server_middleware
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import stream, unary
from toban_transport.server import actor_of, build_server
from toban_transport.tls import TlsFiles

DOMAIN = "toban.internal"


class Reader(rpc.JobReaderServicer):
    """Names the actor as a job, and watches a run for ever."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def ListJobs(self, request: Any, context: Any) -> Any:
        return pb.ListJobsResponse(jobs=[pb.Job(name=actor_of(context)), pb.Job(name="hidden")])

    async def WatchRun(self, request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            yield pb.Run(id=1)
            await asyncio.Event().wait()
        finally:
            self.left.set()


class Admission:
    """A person who may read until `revoked`."""

    actor = "user ada"

    def __init__(self) -> None:
        self.revoked = False

    async def recheck(self) -> None:
        if self.revoked:
            raise TobanError(ErrorCode.UNAUTHENTICATED, "the session has ended; sign in again")

    async def visible(self, answer: Any) -> Any:
        del answer.jobs[1:]
        return answer


class People:
    """Knows one credential."""

    def __init__(self) -> None:
        self.admission = Admission()

    async def admit(self, method: str, *, service: str, about: Any, given: Mapping[str, str]) -> Any:
        assert service == "admin-web" and method.startswith("/toban_proto.v1.JobReader/")
        if given.get("toban-credential") != "good":
            raise TobanError(ErrorCode.UNAUTHENTICATED, "sign in")
        return self.admission


@pytest.fixture
async def site(tls: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setattr(server_middleware, "RECHECK_SECONDS", 0.05)
    people, reader = People(), Reader()
    server = build_server(tls=TlsFiles(tls / "coordinator"), trust_domain=DOMAIN, clock=SystemClock(), people=people)
    server.add(rpc.add_JobReaderServicer_to_server, reader)
    port = await server.start("127.0.0.1", 0)
    pool = ChannelPool(tls=TlsFiles(tls / "admin-web"), trust_domain=DOMAIN)
    yield pool.stub(rpc.JobReaderStub, f"127.0.0.1:{port}", "coordinator"), people, reader
    await pool.close()
    await server.stop(0)


GOOD = (("toban-credential", "good"),)


async def test_a_call_is_refused_or_names_its_person(site: Any) -> None:
    stub, _, _ = site
    with pytest.raises(TobanError, match="sign in"):
        await unary(stub.ListJobs, pb.ListJobsRequest(), timeout=20)
    answer = await unary(stub.ListJobs, pb.ListJobsRequest(), timeout=20, metadata=GOOD)
    assert [job.name for job in answer.jobs] == ["user ada"]


async def test_a_stream_ends_when_its_person_may_not_go_on(site: Any) -> None:
    stub, people, reader = site
    answers = stream(stub.WatchRun, pb.GetRunRequest(id=1), timeout=30, metadata=GOOD)
    assert (await anext(answers)).id == 1
    people.admission.revoked = True
    with pytest.raises(TobanError, match="the session has ended"):
        await anext(answers)
    await asyncio.wait_for(reader.left.wait(), 20)
