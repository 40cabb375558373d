"""Readers of job output that retry broken streams, for tests with faults."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import logs_pb2, logs_pb2_grpc
from toban_proto.v1.common_pb2 import ReadTicket
from toban_runtime.clock import SystemClock
from toban_stack.certs import TRUST_DOMAIN
from toban_testing.deterministic_log_jobs import ReadAttempt
from toban_transport.channel import open_sync_channel
from toban_transport.client_calls import stream_sync, unary_sync
from toban_transport.read_ticket import ReadTicketSigner
from toban_transport.tls import TlsFiles

PAUSE_SECONDS = 0.1


def read_ticket(tls: Path, *run_ids: int) -> ReadTicket:
    """For these runs, as a coordinator signs it; `tls` is the folder with a folder for each service."""
    signer = ReadTicketSigner(TlsFiles(tls / "coordinator"))
    return signer.sign(actor="certificate admin-cli", run_ids=run_ids, now=SystemClock().wall())


_AWAY = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED})


class LogReaders:
    """Calls log-archivers in turn. A broken stream is discarded and read again from the start. Close it.

    `tls_dir` has the certificate of admin-cli, and is beside that of a coordinator. `broken` counts broken streams. Not thread-safe.
    """

    def __init__(self, addresses: Sequence[str], tls_dir: Path, *, timeout: float = 60.0) -> None:
        tls = TlsFiles(tls_dir)
        self._tls_dir = tls_dir
        self._channels = [open_sync_channel(address, "log-archiver", tls, TRUST_DOMAIN) for address in addresses]
        self._next = 0
        self._timeout = timeout
        self._clock = SystemClock()
        self.broken = 0

    def __enter__(self) -> LogReaders:
        return self

    def __exit__(self, *exc: object) -> None:
        for channel in self._channels:
            channel.close()

    def read(self, run_id: int) -> dict[int, ReadAttempt]:
        """Every line of a run by attempt (token). Raises TimeoutError after too long an outage, and errors that are no outage."""
        ends_at = self._clock.monotonic() + self._timeout
        while True:
            try:
                return self._read(run_id)
            except TobanError as error:
                if error.code not in _AWAY:
                    raise
                if self._clock.monotonic() > ends_at:
                    raise TimeoutError(f"run {run_id} cannot be read: {error.message}") from error
                self.broken += 1
                threading.Event().wait(PAUSE_SECONDS)

    def places(self, run_id: int) -> set[str]:
        """Where the lines of a run are stored: db, s3 URIs."""
        stub = logs_pb2_grpc.LogReaderStub(self._channel())
        answer = unary_sync(stub.Describe, self._request(logs_pb2.DescribeLogRequest, run_id), timeout=10)
        return {place for one in answer.attempts for place in one.place.split(", ") if place}

    def archive(self) -> list[logs_pb2.RunArchiveResponse]:
        """Runs one pass of the archive; returns its actions. Raises TobanError."""
        stub = logs_pb2_grpc.LogArchiveStub(self._channel())
        return list(stream_sync(stub.RunArchive, logs_pb2.RunArchiveRequest(), timeout=120))

    def verify(self) -> list[logs_pb2.VerifyArchiveResponse]:
        """Verifies every object against its manifest. Raises TobanError."""
        stub = logs_pb2_grpc.LogArchiveStub(self._channel())
        return list(stream_sync(stub.Verify, logs_pb2.VerifyArchiveRequest(), timeout=120))

    def _read(self, run_id: int) -> dict[int, ReadAttempt]:
        found: dict[int, ReadAttempt] = {}
        stub = logs_pb2_grpc.LogReaderStub(self._channel())
        for answer in stream_sync(stub.Read, self._request(logs_pb2.ReadLogRequest, run_id), timeout=20):
            for line in answer.lines:
                found.setdefault(answer.token, ReadAttempt()).lines.append((line.stream, line.seq, line.text))
        return found

    def _request(self, kind: Any, run_id: int) -> Any:
        return kind(run_id=run_id, ticket=read_ticket(self._tls_dir.parent, run_id))

    def _channel(self) -> Any:
        self._next += 1
        return self._channels[self._next % len(self._channels)]
