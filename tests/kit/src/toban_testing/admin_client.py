"""A blocking client of a running stack with the admin-cli identity, for end-to-end tests and benchmarks."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import Message

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import TERMINAL
from toban_proto.v1 import common_pb2, logs_pb2, logs_pb2_grpc
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_runtime.clock import SystemClock
from toban_transport.channel import open_sync_channel
from toban_transport.client_calls import stream_sync, unary_sync
from toban_transport.tls import TlsFiles

R = TypeVar("R")
POLL_SECONDS = 0.05
_TERMINAL = frozenset(str(state) for state in TERMINAL)
_TRY_ANOTHER = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED})


class AdminClient:
    """Calls the first coordinator that is reachable, in the given order. Close it, or use it as a context manager."""

    def __init__(
        self,
        *,
        coordinators: Sequence[str],
        log_archivers: Sequence[str],
        tls_dir: Path,
        trust_domain: str = "toban.internal",
    ) -> None:
        tls = TlsFiles(tls_dir)
        self._clock = SystemClock()
        self._addresses = list(coordinators)
        self._channels = [open_sync_channel(address, "coordinator", tls, trust_domain) for address in coordinators]
        self._logs = [open_sync_channel(address, "log-archiver", tls, trust_domain) for address in log_archivers]

    def __enter__(self) -> "AdminClient":
        return self

    def __exit__(self, *exc: object) -> None:
        for channel in (*self._channels, *self._logs):
            channel.close()

    def prefer(self, address: str) -> None:
        """Calls the coordinator at `address` before the others from now on."""
        at = self._addresses.index(address)
        self._addresses.insert(0, self._addresses.pop(at))
        self._channels.insert(0, self._channels.pop(at))

    def call(self, stub: Callable[[Any], Any], method: str, request: Message, *, timeout: float = 10.0) -> Any:
        """One call to the first reachable coordinator. Raises TobanError when none is reachable or the call fails."""
        error = TobanError(ErrorCode.UNAVAILABLE, "no coordinator is known")
        for channel in self._channels:
            try:
                return unary_sync(getattr(stub(channel), method), request, timeout=timeout)
            except TobanError as failed:
                if failed.code not in _TRY_ANOTHER:
                    raise
                error = failed
        raise error

    def apply(self, *documents: Mapping[str, Any], timeout: float = 10.0) -> pb.ApplyResponse:
        """Apply manifests, all or nothing."""
        manifests = [
            pb.Manifest(json=json.dumps(doc), source=f"test document {i + 1}") for i, doc in enumerate(documents)
        ]
        request = pb.ApplyRequest(manifests=manifests)
        answer: pb.ApplyResponse = self.call(rpc.JobControlStub, "Apply", request, timeout=timeout)
        return answer

    def start(self, job: str, *, count: int = 1, payload: Mapping[str, Any] | None = None) -> list[int]:
        """Start `count` runs of `job` in one call; returns their ids."""
        one = pb.StartRunRequest(job=job, payload_json=json.dumps(payload) if payload else "")
        request = pb.StartRunsRequest(runs=[one] * count)
        return [run.run_id for run in self.call(rpc.JobControlStub, "StartRuns", request, timeout=30.0).runs]

    def run(self, run_id: int) -> pb.Run:
        """One run with its attempts and events."""
        answer: pb.Run = self.call(rpc.JobReaderStub, "GetRun", pb.GetRunRequest(id=run_id))
        return answer

    def runs(self, *, page: int = 500, **filters: Any) -> Iterator[pb.Run]:
        """Every run that matches the filters of ListRunsRequest, newest first."""
        cursor = ""
        while True:
            request = pb.ListRunsRequest(page=common_pb2.Page(limit=page, cursor=cursor), **filters)
            answer = self.call(rpc.JobReaderStub, "ListRuns", request)
            yield from answer.runs
            cursor = answer.next_cursor
            if not cursor:
                return

    def cluster(self) -> pb.Cluster:
        """Leader, epoch, members, executors, counts."""
        answer: pb.Cluster = self.call(rpc.JobReaderStub, "GetCluster", pb.GetClusterRequest())
        return answer

    def cancel(self, run_id: int, reason: str = "test", *, mode: str = "") -> pb.CancelRunResponse:
        """Requests the cancellation of a run."""
        request = pb.CancelRunRequest(id=run_id, reason=reason, mode=mode)
        answer: pb.CancelRunResponse = self.call(rpc.JobControlStub, "CancelRun", request)
        return answer

    def read_ticket(self, *run_ids: int) -> common_pb2.ReadTicket:
        """A ticket to read the output of these runs, for a minute."""
        request = pb.GetReadTicketRequest(run_ids=run_ids)
        ticket: common_pb2.ReadTicket = self.call(rpc.JobReaderStub, "GetReadTicket", request).ticket
        return ticket

    def log(self, run_id: int, *, timeout: float = 10.0) -> list[str]:
        """All lines of a run as text, in order."""
        request = logs_pb2.ReadLogRequest(run_id=run_id, ticket=self.read_ticket(run_id))
        pages = stream_sync(logs_pb2_grpc.LogReaderStub(self._logs[0]).Read, request, timeout=timeout)
        return [line.text.decode("utf-8", "replace") for page in pages for line in page.lines]

    def until(self, what: Callable[[], R | None], *, seconds: float = 60.0, of: str) -> R:
        """Polls `what` until its result is true; tolerates unreachable coordinators. Raises TimeoutError."""
        end = self._clock.monotonic() + seconds
        last: object = None
        pause = threading.Event()
        while self._clock.monotonic() < end:
            try:
                answer = what()
            except TobanError as error:
                if error.code not in _TRY_ANOTHER:
                    raise
                answer, last = None, error
            if answer:
                return answer
            pause.wait(POLL_SECONDS)
        raise TimeoutError(f"not within {seconds} s: {of} (last error: {last})")

    def until_ended(self, run_id: int, *, seconds: float = 60.0) -> pb.Run:
        """The run once it is terminal."""
        return self.until(lambda: self._ended(run_id), seconds=seconds, of=f"run {run_id} ended")

    def _ended(self, run_id: int) -> pb.Run | None:
        run = self.run(run_id)
        return run if run.state in _TERMINAL else None
