"""The real site with real mTLS, over a coordinator and a log-archiver with responses that the test sets."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from google.protobuf.message_factory import GetMessageClass

from toban_admin_web.config import AdminWebConfig
from toban_admin_web.main.worker import SiteWorker
from toban_domain.errors import ErrorCode, TobanError
from toban_observability.context import Caller
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc, logs_pb2, logs_pb2_grpc
from toban_proto.v1.common_pb2 import ReadTicket
from toban_runtime.clock import SystemClock
from toban_testing.site_messages import (
    TOKEN,
    audit_entry,
    cluster_message,
    executor_message,
    job_message,
    line,
    now_of_this_test,  # noqa: F401 (a fixture)
    operations_responses,
    overview_message,
    run,
    schedule_message,
    stamp,
)
from toban_transport.server import build_server, metadata
from toban_transport.tls import TlsFiles

SESSION = "5e" * 32
PASSWORD, LINK = "correct horse battery", "11" * 32


class Reader(
    coordinator_pb2_grpc.JobReaderServicer,
    coordinator_pb2_grpc.OperationsServicer,
    coordinator_pb2_grpc.JobControlServicer,
):
    """Records requests and returns `responses` by method: a message, an exception, or a function of the request."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.metadata: list[Mapping[str, str]] = []
        self.seconds: list[float] = []  # What the deadline of each request left.
        self.silent = False
        self.responses: dict[str, Any] = {
            "GetCluster": cluster_message(),
            "GetOverview": overview_message(),
            "ListRuns": pb.ListRunsResponse(runs=[run(7, "SUCCEEDED", finished_at=stamp(28), exit_code=0)]),
            "ListJobs": pb.ListJobsResponse(jobs=[job_message()]),
            "GetJob": job_message(),
            "ListJobVersions": pb.ListJobVersionsResponse(versions=[pb.JobVersion(version=3, spec_json="{}")]),
            "ListSchedules": pb.ListSchedulesResponse(schedules=[schedule_message()]),
            "GetSchedule": schedule_message(),
            "NextSlots": pb.NextSlotsResponse(
                slots=[pb.NextSlot(at=stamp(-60), local="2026-11-21T03:00:00+01:00", rule_note="fold first")]
            ),
            "ListFires": pb.ListFiresResponse(
                fires=[pb.Fire(first_slot=stamp(60), slots=1, outcome="fired", run_id=7)]
            ),
            **operations_responses(),
            "GetRun": run(),
            "ExplainRun": pb.RunExplanation(state="RUNNING", reasons=["it runs on executor-1"]),
            "RerunRun": pb.RerunRunResponse(run_id=12, created=True),
            "GetReadTicket": pb.GetReadTicketResponse(ticket=ReadTicket(body=b"a ticket"), valid_seconds=60),
        }

    async def _response(self, method: str, kind: type, request: Any, context: Any) -> Any:
        self.requests.append(request)
        self.metadata.append(metadata(context))
        self.seconds.append(context.time_remaining())
        if self.silent:
            await asyncio.Event().wait()
        response = self.responses.get(method, kind())
        if isinstance(response, Exception):
            raise response
        return response(request) if callable(response) else response


def _method(name: str, kind: type) -> Any:
    async def response(self: Reader, request: Any, context: Any) -> Any:
        return await self._response(name, kind, request, context)

    return response


class Accounts(coordinator_pb2_grpc.AccountsServicer):
    """One person, ada, with a password; sessions by secret. Everything that was asked is in `requests`."""

    def __init__(self) -> None:
        self.administrator = True
        self.sessions = {SESSION: "ada"}
        self.bounds: dict[str, dict[str, str]] = {}
        self.requests: list[Any] = []
        self.refusal: TobanError | None = None
        self.asked: list[tuple[str, str, Any]] = []  # of methods about the own account: (method, user, request)
        self.own: dict[str, Any] = {}
        self.provider: Any = None  # of toban_testing.oidc_provider
        self.passwords_off = False

    async def Authenticate(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        if request.token:
            if request.token not in self.sessions:
                raise TobanError(ErrorCode.UNAUTHENTICATED, "the API token is unknown", detail={"sign_in": True})
            return pb.AuthenticateResponse(user=self.sessions[request.token], **self.bounds[request.token])
        if request.session:
            if request.session not in self.sessions:
                raise TobanError(ErrorCode.UNAUTHENTICATED, "the session has ended", detail={"sign_in": True})
            return pb.AuthenticateResponse(user=self.sessions[request.session], role="admin")
        if (request.user, request.password) != ("ada", PASSWORD):
            raise TobanError(ErrorCode.UNAUTHENTICATED, "user or password is wrong")
        secret = f"{len(self.requests):064x}"
        self.sessions[secret] = request.user
        return pb.AuthenticateResponse(user=request.user, role="admin", session=secret)

    async def SignOut(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        user = self.sessions.pop(request.session, "")
        if request.everywhere:
            self.sessions = {secret: name for secret, name in self.sessions.items() if name != user}
        return pb.SignOutResponse(ended=1)

    async def GetAccountsState(self, request: Any, context: Any) -> Any:
        return pb.GetAccountsStateResponse(
            has_administrator=self.administrator,
            oidc_name="" if self.provider is None else "Example",
            passwords_off=self.passwords_off,
        )

    async def StartOidcSignIn(self, request: Any, context: Any) -> Any:
        if self.provider is None:
            raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, "no OpenID provider is configured")
        if self.provider.down:
            raise TobanError(ErrorCode.PROVIDER_UNAVAILABLE, "the OpenID provider is not available")
        self.requests.append(request)
        return pb.StartOidcSignInResponse(
            authorization_endpoint=f"{self.provider.issuer}/authorize",
            token_endpoint=f"{self.provider.issuer}/token",
            client_id="toban",
            scope="openid profile",
            nonce=f"nonce-{len(self.requests)}",
            issuer=self.provider.issuer,
        )

    async def SignInWithOidc(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        secret = f"{len(self.requests):064x}"
        self.sessions[secret] = "ada"
        return pb.AuthenticateResponse(user="ada", role="admin", session=secret)

    async def RedeemBootstrapLink(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        if request.secret != LINK:
            raise TobanError(ErrorCode.UNAUTHENTICATED, "the one-time link is not good")
        self.administrator = True
        return pb.RedeemBootstrapLinkResponse()


def _own(method: Any) -> Any:
    async def response(self: Accounts, request: Any, context: Any) -> Any:
        self.asked.append((method.name, self.sessions[metadata(context)["toban-credential"]], request))
        answer = self.own.get(method.name) or getattr(pb, method.output_type.name)()
        if isinstance(answer, Exception):
            raise answer
        return answer

    return response


for _one in pb.DESCRIPTOR.services_by_name["Accounts"].methods:
    if "Own" in _one.name:
        setattr(Accounts, _one.name, _own(_one))


class Logs(logs_pb2_grpc.LogReaderServicer):
    """Lines by token; a call with follow waits for more lines until the token is sealed."""

    def __init__(self) -> None:
        self.lines: dict[int, list[logs_pb2.LogLine]] = {TOKEN: [line(1), line(2)]}
        self.sealed: set[int] = set()
        self.requests: list[Any] = []
        self.silent = False
        self.failure: TobanError | None = None
        self.found: list[Any] = [logs_pb2.SearchLogResponse()]  # of a search: messages and exceptions
        self.changed = asyncio.Condition()

    async def Search(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        for one in self.found:
            if isinstance(one, Exception):
                raise one
            yield one

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        if self.failure is not None:
            raise self.failure
        if self.silent:
            await asyncio.Event().wait()
        sent: dict[int, int] = {}
        while True:
            wanted = [token for token in sorted(self.lines) if request.token in (0, token)]
            for token in wanted:
                first = max(sent.get(token, 0) + 1, request.from_seq)
                fresh = [one for one in self.lines[token] if one.seq >= first]
                if fresh:
                    sent[token] = fresh[-1].seq
                    yield logs_pb2.ReadLogResponse(token=token, lines=fresh[-request.tail :] if request.tail else fresh)
            if not request.follow:
                return
            if wanted and wanted[-1] in self.sealed:
                yield logs_pb2.ReadLogResponse(token=wanted[-1], at_end=True)
                return
            async with self.changed:
                await self.changed.wait()


for _service in ("JobReader", "Operations", "JobControl"):
    for _one in pb.DESCRIPTOR.services_by_name[_service].methods:
        setattr(Reader, _one.name, _method(_one.name, GetMessageClass(_one.output_type)))


class Everybody:
    """A coordinator's check of people: what they may is the matter of its own tests."""

    async def admit(self, method: str, *, caller: Caller, about: Any, given: Mapping[str, str]) -> None:
        """Allows every call."""


class FakeCluster:
    """One coordinator and one log-archiver in a thread with an event loop."""

    def __init__(self, tls: Path, further: Any = None) -> None:
        self._further = further
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.do(self._start(tls))

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def write(self, *lines: logs_pb2.LogLine, token: int = TOKEN, sealed: bool = False) -> None:
        """Appends output, which calls with follow receive at once."""

        async def add() -> None:
            self.logs.lines.setdefault(token, []).extend(lines)
            if sealed:
                self.logs.sealed.add(token)
            async with self.logs.changed:
                self.logs.changed.notify_all()

        self.do(add())

    async def _start(self, tls: Path) -> None:
        self.reader, self.logs, self.accounts = Reader(), Logs(), Accounts()
        self._servers = []
        parts = {
            "coordinator": (coordinator_pb2_grpc.add_JobReaderServicer_to_server, self.reader),
            "log-archiver": (logs_pb2_grpc.add_LogReaderServicer_to_server, self.logs),
        }
        addresses = []
        if self._further is not None:
            self._further.prepare(self)
        for name, (adder, servicer) in parts.items():
            people = (self._further or Everybody()) if name == "coordinator" else None
            server = build_server(
                tls=TlsFiles(tls / name), trust_domain="toban.internal", clock=SystemClock(), people=people
            )
            server.add(adder, servicer)
            if name == "coordinator":
                server.add(coordinator_pb2_grpc.add_AccountsServicer_to_server, self.accounts)
                if self._further is None:
                    server.add(coordinator_pb2_grpc.add_OperationsServicer_to_server, self.reader)
                    server.add(coordinator_pb2_grpc.add_JobControlServicer_to_server, self.reader)
                else:
                    for further_adder, further in self._further.services:
                        server.add(further_adder, further)
            addresses.append(f"127.0.0.1:{await server.start('127.0.0.1', 0)}")
            await server.set_serving(True)
            self._servers.append(server)
        self.coordinator, self.archiver = addresses

    async def _stop(self, which: slice) -> None:
        for server in self._servers[which]:
            await server.stop(0)

    def stop_coordinator(self) -> None:
        self.do(self._stop(slice(0, 1)))

    def stop_archiver(self) -> None:
        self.do(self._stop(slice(1, 2)))

    def close(self) -> None:
        self.do(self._stop(slice(0, 2)))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass
class Web:
    """The application over a FakeCluster, and a client of it."""

    cluster: FakeCluster
    worker: SiteWorker
    client: FlaskClient = field(init=False)
    # Builders of messages.
    run = staticmethod(run)
    line = staticmethod(line)
    stamp = staticmethod(stamp)
    job = staticmethod(job_message)
    schedule = staticmethod(schedule_message)
    executor = staticmethod(executor_message)
    audit_entry = staticmethod(audit_entry)
    whole = staticmethod(cluster_message)
    token = TOKEN

    def __post_init__(self) -> None:
        self.client = self.worker.app.test_client()
        self.client.set_cookie("toban-session", SESSION)

    def get(self, path: str, **headers: str) -> Any:
        """A response of the site; header names are written with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.get(path, headers=named)

    def page(self, path: str, **headers: str) -> str:
        """The text of a page, which must exist."""
        response = self.get(path, **headers)
        assert response.status_code == 200, response.get_data(as_text=True)
        return str(response.get_data(as_text=True))

    def post(self, path: str, **fields: str) -> Any:
        """The answer to a form of the page at `path`, with the hidden fields that the page has."""
        page = self.page(path)
        [(action, body)] = re.findall(r'<form class="action"[^>]* action="([^"]*)">(.*?)</form>', page, re.DOTALL)
        hidden = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', body))
        self.cluster.reader.requests.clear()
        return self.client.post(action, data={**hidden, **fields}, headers={"Origin": "http://localhost"})

    def refuse(self, method: str, code: ErrorCode, message: str = "no") -> None:
        """Makes a method of the coordinator fail."""
        self.cluster.reader.responses[method] = TobanError(code, message)


@pytest.fixture
def further() -> Any:
    """What else the coordinator serves (api/conftest.py)."""
    return None


@pytest.fixture
def cluster(tls: Path, further: Any) -> Iterator[FakeCluster]:
    """A running cluster."""
    fake = FakeCluster(tls, further)
    yield fake
    fake.close()


@pytest.fixture
def new_web(cluster: FakeCluster, tls: Path) -> Iterator[Callable[..., Web]]:
    """Makes sites over the cluster, with any settings."""
    made: list[SiteWorker] = []

    def make(**given: Any) -> Web:
        # Tests make more requests than a person.
        values = {"coordinators": (cluster.coordinator,), "log_archivers": (cluster.archiver,), "api_rate": 0}
        config = AdminWebConfig(tls_dir=tls / "admin-web", **(values | given))
        made.append(SiteWorker(config=config, http_port=0, stopping=threading.Event()))
        return Web(cluster, made[-1])

    yield make
    for worker in made:
        worker.close()


@pytest.fixture
def web(new_web: Callable[..., Web]) -> Web:
    """A site over the cluster."""
    return new_web()
