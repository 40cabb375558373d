"""What a log-archiver answers to the command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from toban_domain.errors import TobanError
from toban_domain.version import VERSION
from toban_proto.v1 import logs_pb2, logs_pb2_grpc


class Logs(logs_pb2_grpc.LogReaderServicer):
    """Sends `first` to followers and keeps their stream open; the whole log is `first + late`."""

    def __init__(self) -> None:
        self.first: list[logs_pb2.LogLine] = []
        self.late: list[logs_pb2.LogLine] = []
        self.token = 7
        self.requests: list[Any] = []
        self.at_end = False
        self.ends_at_request = 0
        self.read_to = 0
        self.stored = True
        self.expired_lines = 0
        self.expired_late = 0
        self.found: list[list[Any]] = []
        self.place = "db"
        self.failures: list[TobanError] = []
        # That of the coordinator, which learns what was read.
        self.reader: Any = None

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Each of `failures` ends one call: the first line is sent, unless the caller has it."""
        self.requests.append(request)
        if self.failures:
            if not request.HasField("after"):
                yield logs_pb2.ReadLogResponse(token=self.token, lines=self.first[:1])
            raise self.failures.pop(0)
        if len(self.requests) == self.ends_at_request:
            self.at_end = True
        if self.expired_lines:
            yield logs_pb2.ReadLogResponse(token=self.token, expired_lines=self.expired_lines)
        lines = [line for line in self.first + ([] if request.follow else self.late) if line.seq >= request.from_seq]
        lines = [line for line in lines if line.seq > request.after.seq]
        yield logs_pb2.ReadLogResponse(token=self.token, lines=lines[-request.tail :] if request.tail else lines)
        if self.expired_late:
            yield logs_pb2.ReadLogResponse(token=self.token, expired_lines=self.expired_late)
        if self.read_to:
            yield logs_pb2.ReadLogResponse(token=self.token, read_to=self.read_to)
        if request.follow and self.at_end:
            yield logs_pb2.ReadLogResponse(token=self.token, at_end=True)
        if request.follow:
            if self.reader is not None and len(self.requests) >= self.ends_at_request:
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
