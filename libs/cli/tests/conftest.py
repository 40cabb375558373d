"""A cluster for the command line to talk to: the real server over mTLS, with answers that the test sets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_cli.main import run
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.version import VERSION
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc, logs_pb2, logs_pb2_grpc
from toban_runtime.clock import SystemClock
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles


class Control(coordinator_pb2_grpc.JobControlServicer):
    """Keeps requests, gives the answers of the test."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.answers: dict[str, Any] = {}

    def answer(self, method: str, request: Any) -> Any:
        self.requests.append(request)
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    async def Apply(self, request: Any, context: Any) -> Any:
        return self.answer("Apply", request)

    async def StartRuns(self, request: Any, context: Any) -> Any:
        return self.answer("StartRuns", request)

    async def EmitEvent(self, request: Any, context: Any) -> Any:
        return self.answer("EmitEvent", request)

    async def DeleteTrigger(self, request: Any, context: Any) -> Any:
        return self.answer("DeleteTrigger", request)

    async def PauseSchedule(self, request: Any, context: Any) -> Any:
        return self.answer("PauseSchedule", request)

    async def ResumeSchedule(self, request: Any, context: Any) -> Any:
        return self.answer("ResumeSchedule", request)

    async def DeleteSchedule(self, request: Any, context: Any) -> Any:
        return self.answer("DeleteSchedule", request)

    async def CancelRun(self, request: Any, context: Any) -> Any:
        return self.answer("CancelRun", request)

    async def CancelRuns(self, request: Any, context: Any) -> Any:
        return self.answer("CancelRuns", request)

    async def RerunRun(self, request: Any, context: Any) -> Any:
        return self.answer("RerunRun", request)

    async def RerunRuns(self, request: Any, context: Any) -> Any:
        return self.answer("RerunRuns", request)

    async def NoteRun(self, request: Any, context: Any) -> Any:
        return self.answer("NoteRun", request)

    async def DeleteJob(self, request: Any, context: Any) -> Any:
        return self.answer("DeleteJob", request)

    async def DeclareRunLost(self, request: Any, context: Any) -> Any:
        return self.answer("DeclareRunLost", request)


class Reader(coordinator_pb2_grpc.JobReaderServicer):
    """Answers from `answers`; `runs` are what WatchRun sends, the last of them is the run."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.answers: dict[str, Any] = {}
        self.runs: list[pb.Run] = []
        self.logged = asyncio.Event()

    def answer(self, method: str, request: Any) -> Any:
        self.requests.append(request)
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    async def ListJobs(self, request: Any, context: Any) -> Any:
        return self.answer("ListJobs", request)

    async def GetJob(self, request: Any, context: Any) -> Any:
        return self.answer("GetJob", request)

    async def ListSchedules(self, request: Any, context: Any) -> Any:
        return self.answer("ListSchedules", request)

    async def ListRuns(self, request: Any, context: Any) -> Any:
        return self.answer("ListRuns", request)

    async def GetSchedule(self, request: Any, context: Any) -> Any:
        return self.answer("GetSchedule", request)

    async def NextSlots(self, request: Any, context: Any) -> Any:
        return self.answer("NextSlots", request)

    async def ListFires(self, request: Any, context: Any) -> Any:
        return self.answer("ListFires", request)

    async def ListTriggers(self, request: Any, context: Any) -> Any:
        return self.answer("ListTriggers", request)

    async def ListEvents(self, request: Any, context: Any) -> Any:
        return self.answer("ListEvents", request)

    async def ListExecutors(self, request: Any, context: Any) -> Any:
        return self.answer("ListExecutors", request)

    async def GetCluster(self, request: Any, context: Any) -> Any:
        return self.answer("GetCluster", request)

    async def ExplainRun(self, request: Any, context: Any) -> Any:
        return self.answer("ExplainRun", request)

    async def GetRun(self, request: Any, context: Any) -> Any:
        if not self.runs:
            raise TobanError(ErrorCode.RUN_NOT_FOUND, f"there is no run {request.id}; see `toban run list`")
        return self.runs[-1]

    async def WatchRun(self, request: Any, context: Any) -> AsyncIterator[Any]:
        for run_now in self.runs[:-1]:
            yield run_now
        await self.logged.wait()
        yield self.runs[-1]


class Operations(coordinator_pb2_grpc.OperationsServicer):
    """Keeps requests, gives the answers of the test."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.answers: dict[str, Any] = {}

    def answer(self, method: str, request: Any) -> Any:
        self.requests.append(request)
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    async def ListSettings(self, request: Any, context: Any) -> Any:
        return self.answer("ListSettings", request)

    async def UpdateSetting(self, request: Any, context: Any) -> Any:
        return self.answer("UpdateSetting", request)

    async def ListLimits(self, request: Any, context: Any) -> Any:
        return self.answer("ListLimits", request)

    async def GetLimit(self, request: Any, context: Any) -> Any:
        return self.answer("GetLimit", request)

    async def SetLimit(self, request: Any, context: Any) -> Any:
        return self.answer("SetLimit", request)

    async def SetBreaker(self, request: Any, context: Any) -> Any:
        return self.answer("SetBreaker", request)

    async def SignalLimit(self, request: Any, context: Any) -> Any:
        return self.answer("SignalLimit", request)

    async def ListAudit(self, request: Any, context: Any) -> Any:
        return self.answer("ListAudit", request)

    async def DrainExecutor(self, request: Any, context: Any) -> Any:
        return self.answer("DrainExecutor", request)

    async def UndrainExecutor(self, request: Any, context: Any) -> Any:
        return self.answer("UndrainExecutor", request)

    async def DetachExecutor(self, request: Any, context: Any) -> Any:
        return self.answer("DetachExecutor", request)

    async def DemoteLeader(self, request: Any, context: Any) -> Any:
        return self.answer("DemoteLeader", request)

    async def AdoptEpoch(self, request: Any, context: Any) -> Any:
        return self.answer("AdoptEpoch", request)


class Accounts(coordinator_pb2_grpc.AccountsServicer):
    """Keeps requests, gives the answers of the test."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.answers: dict[str, Any] = {}


def _recorded(method: str) -> Any:
    async def handle(self: Accounts, request: Any, context: Any) -> Any:
        self.requests.append(request)
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return handle


for _name in pb.DESCRIPTOR.services_by_name["Accounts"].methods_by_name:
    setattr(Accounts, _name, _recorded(_name))


class Logs(logs_pb2_grpc.LogReaderServicer):
    """Sends `first` to followers and keeps their stream open; the whole log is `first + late`."""

    def __init__(self) -> None:
        self.first: list[logs_pb2.LogLine] = []
        self.late: list[logs_pb2.LogLine] = []
        self.token = 7
        self.requests: list[Any] = []
        self.at_end = False
        self.stored = True
        self.expired_lines = 0
        self.expired_late = 0
        self.found: list[list[Any]] = []
        self.place = "db"
        self.failures: list[TobanError] = []
        self.reader: Reader | None = None

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Each of `failures` ends one call: the first line is sent, unless the caller has it."""
        self.requests.append(request)
        if self.failures:
            if not request.HasField("after"):
                yield logs_pb2.ReadLogResponse(token=self.token, lines=self.first[:1])
            raise self.failures.pop(0)
        if self.expired_lines:
            yield logs_pb2.ReadLogResponse(token=self.token, expired_lines=self.expired_lines)
        lines = [line for line in self.first + ([] if request.follow else self.late) if line.seq >= request.from_seq]
        yield logs_pb2.ReadLogResponse(token=self.token, lines=lines[-request.tail :] if request.tail else lines)
        if self.expired_late:
            yield logs_pb2.ReadLogResponse(token=self.token, expired_lines=self.expired_late)
        if request.follow and self.at_end:
            yield logs_pb2.ReadLogResponse(token=self.token, at_end=True)
        if request.follow:
            if self.reader is not None:
                self.reader.logged.set()
            if not self.at_end:
                await asyncio.Event().wait()

    async def Search(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Each of `found` (a list of answers) is one call; an error in it breaks the stream."""
        self.requests.append(request)
        for answer in self.found.pop(0):
            if isinstance(answer, TobanError):
                raise answer
            yield answer

    async def Describe(self, request: Any, context: Any) -> Any:
        if not self.stored:
            return logs_pb2.DescribeLogResponse()
        return logs_pb2.DescribeLogResponse(
            attempts=[
                logs_pb2.AttemptLog(
                    token=self.token,
                    sealed=True,
                    lines=len(self.first + self.late),
                    last_seq=len(self.first + self.late),
                    place=self.place,
                )
            ]
        )


class Archive(logs_pb2_grpc.LogArchiveServicer):
    """Answers what a test puts in."""

    def __init__(self) -> None:
        self.status = logs_pb2.ArchiveStatusResponse()
        self.did: list[Any] = []
        self.verified: list[Any] = []
        self.requests: list[Any] = []
        self.diagnosis = logs_pb2.DiagnoseLogsResponse(version=VERSION)

    async def Diagnose(self, request: Any, context: Any) -> Any:
        return self.diagnosis

    async def Status(self, request: Any, context: Any) -> Any:
        return self.status

    async def RunArchive(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        for one in self.did:
            yield one

    async def Verify(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        for one in self.verified:
            yield one


class FakeCluster:
    """One coordinator and one log-archiver in a thread with an event loop."""

    def __init__(self, tls: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._tls = tls
        self._ports = [0, 0]
        self.control, self.reader, self.logs = Control(), Reader(), Logs()
        self.operations = Operations()
        self.accounts = Accounts()
        self.archive = Archive()
        self.logs.reader = self.reader
        self.do(self._start())
        self.coordinator, self.archiver = (f"127.0.0.1:{port}" for port in self._ports)

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    async def _start(self) -> None:
        """At the ports of before."""
        self._servers = []
        services: list[tuple[str, list[Any]]] = [
            (
                "coordinator",
                [
                    (coordinator_pb2_grpc.add_JobControlServicer_to_server, self.control),
                    (coordinator_pb2_grpc.add_JobReaderServicer_to_server, self.reader),
                    (coordinator_pb2_grpc.add_OperationsServicer_to_server, self.operations),
                    (coordinator_pb2_grpc.add_AccountsServicer_to_server, self.accounts),
                ],
            ),
            (
                "log-archiver",
                [
                    (logs_pb2_grpc.add_LogReaderServicer_to_server, self.logs),
                    (logs_pb2_grpc.add_LogArchiveServicer_to_server, self.archive),
                ],
            ),
        ]
        for index, (name, servicers) in enumerate(services):
            server = build_server(tls=TlsFiles(self._tls / name), trust_domain="toban.internal", clock=SystemClock())
            for adder, servicer in servicers:
                server.add(adder, servicer)
            self._ports[index] = await server.start("127.0.0.1", self._ports[index])
            self._servers.append(server)

    def go_away(self) -> None:
        """No process listens at the addresses any more."""
        self.do(self._stop())

    def come_back(self) -> None:
        """As before, at the same addresses."""
        self.do(self._start())

    async def _stop(self) -> None:
        for server in self._servers:
            await server.stop(0)

    def close(self) -> None:
        self.do(self._stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def cluster(tls: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A running cluster that the environment names."""
    fake = FakeCluster(tls)
    monkeypatch.setenv("SCHEDULER_COORDINATORS", fake.coordinator)
    monkeypatch.setenv("SCHEDULER_LOG_ARCHIVERS", fake.archiver)
    monkeypatch.setenv("SCHEDULER_TLS_DIR", str(tls))
    yield fake
    fake.close()


@pytest.fixture
def toban(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Runs a command: (exit code, stdout, stderr)."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("TOBAN_HOME", raising=False)

    def call(*argv: str) -> tuple[int, str, str]:
        code = run(argv)
        out, err = capfd.readouterr()
        return code, out, err

    return call
