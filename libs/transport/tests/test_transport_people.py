"""The server's part of persons: who is asked, the actor in the handler, answers made smaller, streams that end with the right to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_observability.context import CALLER, Caller
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_runtime.clock import SystemClock
from toban_transport import server_middleware
from toban_transport.authz import ADMIN_WEB, METHOD_RULES
from toban_transport.call_context import set_caller
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import stream, unary
from toban_transport.errors import from_rpc_error
from toban_transport.server import actor_of, build_server
from toban_transport.tls import TlsFiles

DOMAIN = "toban.internal"


class Reader(rpc.JobReaderServicer):
    """Names the actor as a job, and watches a run for ever."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.by_command: Any = None
        self.channel: Any = None

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
        self.callers: list[Caller] = []

    async def admit(self, method: str, *, caller: Caller, about: Callable[[], Any], given: Mapping[str, str]) -> Any:
        assert caller == CALLER.get()
        self.callers.append(caller)
        assert method.startswith("/toban_proto.v1.JobReader/")
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
    pools = {name: ChannelPool(tls=TlsFiles(tls / name), trust_domain=DOMAIN) for name in ("admin-web", "admin-cli")}
    stubs = {name: pool.stub(rpc.JobReaderStub, f"127.0.0.1:{port}", "coordinator") for name, pool in pools.items()}
    reader.by_command = stubs["admin-cli"]
    reader.channel = pools["admin-web"].get(f"127.0.0.1:{port}", "coordinator")
    yield stubs["admin-web"], people, reader
    for pool in pools.values():
        await pool.close()
    await server.stop(0)


GOOD = (("toban-credential", "good"),)


async def test_a_call_is_refused_or_names_its_person(site: Any) -> None:
    stub, _, _ = site
    with pytest.raises(TobanError, match="sign in"):
        await unary(stub.ListJobs, pb.ListJobsRequest(), timeout=20)
    answer = await unary(stub.ListJobs, pb.ListJobsRequest(), timeout=20, metadata=GOOD)
    assert [job.name for job in answer.jobs] == ["user ada"]


async def test_only_the_site_says_where_its_person_is(site: Any) -> None:
    stub, people, reader = site
    for given in ("203.0.113.9", "::ffff:203.0.113.9", "2001:DB8::1", "nowhere; DROP", ""):
        metadata = (*GOOD, ("toban-address", given))
        await unary(stub.ListJobs, pb.ListJobsRequest(), timeout=20, metadata=metadata)
    await unary(
        reader.by_command.ListJobs, pb.ListJobsRequest(), timeout=20, metadata=(*GOOD, ("toban-address", "203.0.113.9"))
    )
    assert people.callers == [
        Caller("203.0.113.9", "admin-web"),
        Caller("203.0.113.9", "admin-web"),
        Caller("2001:db8::1", "admin-web"),
        Caller("127.0.0.1", "admin-web"),
        Caller("127.0.0.1", "admin-web"),
        Caller("127.0.0.1", "admin-cli"),
    ]


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.7:5000", "10.0.0.7"),
        ("ipv6:%5B2001:db8::7%5D:5000", "2001:db8::7"),
        ("ipv6:[::1]:1", "::1"),
        ("unix:", ""),
    ],
)
def test_the_address_of_a_connection(peer: str, host: str) -> None:
    context = SimpleNamespace(
        peer=lambda: peer,
        auth_context=lambda: {"peer_spiffe_id": [b"spiffe://toban.internal/admin-cli"]},
    )
    assert set_caller(context, {}) == Caller(host, "admin-cli")  # type: ignore[arg-type]


async def test_a_stream_ends_when_its_person_may_not_go_on(site: Any) -> None:
    stub, people, reader = site
    answers = stream(stub.WatchRun, pb.GetRunRequest(id=1), timeout=30, metadata=GOOD)
    assert (await anext(answers)).id == 1
    people.admission.revoked = True
    with pytest.raises(TobanError, match="the session has ended"):
        await anext(answers)
    await asyncio.wait_for(reader.left.wait(), 60)


class Control(rpc.JobControlServicer):
    """Takes every note."""

    async def NoteRun(self, request: Any, context: Any) -> Any:
        return pb.NoteRunResponse()


@pytest.mark.parametrize("caller", ["admin-web", "admin-cli"])
async def test_without_accounts_the_site_changes_nothing(tls: Path, caller: str) -> None:
    server = build_server(tls=TlsFiles(tls / "coordinator"), trust_domain=DOMAIN, clock=SystemClock())
    server.add(rpc.add_JobControlServicer_to_server, Control())
    port = await server.start("127.0.0.1", 0)
    pool = ChannelPool(tls=TlsFiles(tls / caller), trust_domain=DOMAIN)
    stub = pool.stub(rpc.JobControlStub, f"127.0.0.1:{port}", "coordinator")
    try:
        if caller == "admin-cli":
            await unary(stub.NoteRun, pb.NoteRunRequest(id=1), timeout=20)
            return
        with pytest.raises(TobanError, match="this server has no accounts") as caught:
            await unary(stub.NoteRun, pb.NoteRunRequest(id=1), timeout=20, metadata=GOOD)
        assert caught.value.code is ErrorCode.UNAUTHENTICATED
    finally:
        await pool.close()
        await server.stop(0)


async def test_a_method_for_people_without_a_rule_stops_the_start_also_without_accounts(tls: Path) -> None:
    rules = dict(METHOD_RULES) | {"/toban_proto.v1.Peer/Ping": frozenset({ADMIN_WEB})}
    server = build_server(tls=TlsFiles(tls / "coordinator"), trust_domain=DOMAIN, clock=SystemClock(), rules=rules)
    server.add(rpc.add_PeerServicer_to_server, rpc.PeerServicer())
    with pytest.raises(TobanError, match=r"no action in the rule of /toban_proto\.v1\.Peer/Ping; add it"):
        await server.start("127.0.0.1", 0)


async def test_the_person_is_decided_before_the_request_is_parsed(site: Any) -> None:
    _, _, reader = site
    call = reader.channel.unary_unary("/toban_proto.v1.JobReader/ListJobs")
    for metadata, code in (((), ErrorCode.UNAUTHENTICATED), (GOOD, ErrorCode.INVALID_ARGUMENT)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"\xff" * 100, timeout=20, metadata=metadata)
        assert from_rpc_error(caught.value).code is code
