"""The real site with real mTLS, over a coordinator and a log-archiver with responses that the test sets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from toban_admin_web.config import AdminWebConfig
from toban_admin_web.main.worker import SiteWorker
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc, logs_pb2, logs_pb2_grpc
from toban_runtime.clock import SystemClock
from toban_transport.convert import timestamp_to_pb
from toban_transport.server import build_server, metadata
from toban_transport.tls import TlsFiles

SESSION = "5e" * 32
PASSWORD = "correct horse battery"
LINK = "11" * 32
EPOCH = (1 << 51) | (1 << 27)
TOKEN = EPOCH + 1
NOW = SystemClock().wall()


def stamp(seconds_ago: float = 0.0, at: datetime | None = None) -> Any:
    """A time some seconds before the start of the tests."""
    return timestamp_to_pb((at or NOW) - timedelta(seconds=seconds_ago))


def line(seq: int, text: str = "", *, stream: int = 1, partial: bool = False) -> logs_pb2.LogLine:
    """A line of output."""
    nanos = int(datetime(2026, 11, 21, tzinfo=UTC).timestamp()) * 10**9
    return logs_pb2.LogLine(
        seq=seq, at_unix_nanos=nanos, stream=stream, text=(text or f"line {seq}").encode(), partial=partial
    )


def run(number: int = 1, state: str = "RUNNING", **given: Any) -> pb.Run:
    """A run on executor-1 with one attempt."""
    values: dict[str, Any] = {
        "job": "hello",
        "definition_version": 3,
        "origin": "slot",
        "schedule": "hello-often",
        "attempt": 1,
        "max_attempts": 3,
        "token": TOKEN,
        "executor": "executor-1",
        "payload_json": '{"name": "world"}',
        "scheduled_for": stamp(30),
        "started_at": stamp(29),
        "attempts": [pb.Attempt(token=TOKEN, attempt=1, state=state, executor="executor-1", dispatched_at=stamp(30))],
        "events": [pb.RunEvent(at=stamp(30), type="created", to_state="PENDING", actor="leader")],
    }
    return pb.Run(id=number, state=state, **(values | given))


class Reader(coordinator_pb2_grpc.JobReaderServicer):
    """Records requests and returns `responses` by method: a message, an exception, or a function of the request."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.metadata: list[Mapping[str, str]] = []
        self.silent = False
        self.responses: dict[str, Any] = {
            "GetCluster": cluster_message(),
            "ListRuns": pb.ListRunsResponse(runs=[run(7, "SUCCEEDED", finished_at=stamp(28), exit_code=0)]),
            "ListJobs": pb.ListJobsResponse(jobs=[job_message()]),
            "GetJob": job_message(),
            "ListSchedules": pb.ListSchedulesResponse(schedules=[schedule_message()]),
            "GetSchedule": schedule_message(),
            "NextSlots": pb.NextSlotsResponse(
                slots=[pb.NextSlot(at=stamp(-60), local="2026-11-21T03:00:00+01:00", rule_note="fold first")]
            ),
            "ListFires": pb.ListFiresResponse(
                fires=[pb.Fire(first_slot=stamp(60), slots=1, outcome="fired", run_id=7)]
            ),
            "ListExecutors": pb.ListExecutorsResponse(executors=[executor_message()]),
            "GetRun": run(),
        }

    async def _response(self, method: str, request: Any, context: Any) -> Any:
        self.requests.append(request)
        self.metadata.append(metadata(context))
        if self.silent:
            await asyncio.Event().wait()
        response = self.responses[method]
        if isinstance(response, Exception):
            raise response
        return response(request) if callable(response) else response


def _method(name: str) -> Any:
    async def response(self: Reader, request: Any, context: Any) -> Any:
        return await self._response(name, request, context)

    return response


class Accounts(coordinator_pb2_grpc.AccountsServicer):
    """One person, ada, with a password; sessions by secret. Everything that was asked is in `requests`."""

    def __init__(self) -> None:
        self.administrator = True
        self.sessions = {SESSION: "ada"}
        self.requests: list[Any] = []
        self.refusal: TobanError | None = None

    async def Authenticate(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
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
        return pb.GetAccountsStateResponse(has_administrator=self.administrator)

    async def RedeemBootstrapLink(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        if request.secret != LINK:
            raise TobanError(ErrorCode.UNAUTHENTICATED, "the one-time link is not good")
        self.administrator = True
        return pb.RedeemBootstrapLinkResponse()


class Logs(logs_pb2_grpc.LogReaderServicer):
    """Lines by token; a call with follow waits for more lines until the token is sealed."""

    def __init__(self) -> None:
        self.lines: dict[int, list[logs_pb2.LogLine]] = {TOKEN: [line(1), line(2)]}
        self.sealed: set[int] = set()
        self.requests: list[Any] = []
        self.silent = False
        self.changed = asyncio.Condition()

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
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


def cluster_message(**given: Any) -> pb.Cluster:
    """A healthy cluster of two coordinators and one executor."""
    values: dict[str, Any] = {
        "epoch": EPOCH,
        "leader_worker_id": 1,
        "leader_address": "127.0.0.1:5000",
        "leader_since": stamp(3600),
        "last_beat_at": stamp(0.2),
        "server_time": stamp(),
        "settled": True,
        "coordinators": [
            pb.Member(worker_id=1, node_id="a", address="127.0.0.1:5000", role="leader", status="ok"),
            pb.Member(worker_id=2, node_id="b", address="127.0.0.1:5001", role="subleader", status="ok"),
        ],
        "executors": [executor_message()],
        "health_json": '{"status": "warning", "checks": {"redis": {"status": "warning", "value": false}}}',
        "running": 4,
        "pending": 5,
    }
    return pb.Cluster(**(values | given))


def executor_message(**given: Any) -> pb.Executor:
    """An executor that accepts runs."""
    values: dict[str, Any] = {
        "worker_id": 3,
        "node_id": "executor-1",
        "address": "127.0.0.1:6000",
        "state": "on",
        "slots": 16,
        "running": 4,
        "labels": {"zone": "north"},
        "last_heartbeat_at": stamp(1),
    }
    return pb.Executor(**(values | given))


def schedule_message(**given: Any) -> pb.Schedule:
    """A schedule that fires every five seconds."""
    values: dict[str, Any] = {
        "name": "hello-often",
        "job": "hello",
        "enabled": True,
        "status": "active",
        "spec_json": '{"name": "hello-often", "interval_seconds": 5}',
        "timezone": "UTC",
        "rule": "every 5 seconds",
        "next_run_at": stamp(-60),
    }
    return pb.Schedule(**(values | given))


def job_message(**given: Any) -> pb.Job:
    """A job with a schedule and a last run."""
    values: dict[str, Any] = {
        "name": "hello",
        "version": 3,
        "enabled": True,
        "description": "Says hello",
        "spec_json": '{"name": "hello", "steps": []}',
        "schedules": [schedule_message()],
        "last_run": run(7, "SUCCEEDED"),
    }
    return pb.Job(**(values | given))


for _name in Reader().responses:
    setattr(Reader, _name, _method(_name))


class FakeCluster:
    """One coordinator and one log-archiver in a thread with an event loop."""

    def __init__(self, tls: Path) -> None:
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
        for name, (adder, servicer) in parts.items():
            server = build_server(tls=TlsFiles(tls / name), trust_domain="toban.internal", clock=SystemClock())
            server.add(adder, servicer)
            if name == "coordinator":
                server.add(coordinator_pb2_grpc.add_AccountsServicer_to_server, self.accounts)
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

    def refuse(self, method: str, code: ErrorCode, message: str = "no") -> None:
        """Makes a method of the coordinator fail."""
        self.cluster.reader.responses[method] = TobanError(code, message)


@pytest.fixture
def cluster(tls: Path) -> Iterator[FakeCluster]:
    """A running cluster."""
    fake = FakeCluster(tls)
    yield fake
    fake.close()


@pytest.fixture
def new_web(cluster: FakeCluster, tls: Path) -> Iterator[Callable[..., Web]]:
    """Makes sites over the cluster, with any settings."""
    made: list[SiteWorker] = []

    def make(**given: Any) -> Web:
        values = {"coordinators": (cluster.coordinator,), "log_archivers": (cluster.archiver,)}
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
