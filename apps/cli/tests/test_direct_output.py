"""The output of a run at the log-archivers while the run ends."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from toban_cli.direct import DirectSource
from toban_cli.follow import attend
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import logs_pb2

RUN = pb.Run(id=1, state="SUCCEEDED", token=5, last_line="line 3")


class Connections:
    """To log-archivers or coordinators that need none."""

    def close(self) -> None:
        pass


class Client:
    """The run has ended. The first read of its output breaks when that is known, before the output is sealed."""

    coordinators = archivers = Connections()

    def __init__(self) -> None:
        self.source = DirectSource(self, 1)
        self.broken = Event()

    def new_archivers(self) -> Connections:
        return Connections()

    def call(self, method: str, _request: Any, **_: Any) -> Any:
        if method == "JobReader.GetRun":
            return RUN
        attempt = logs_pb2.AttemptLog(token=5, last_seq=3, sealed=self.broken.is_set())
        return logs_pb2.DescribeLogResponse(attempts=[attempt])

    def stream(self, method: str, request: Any, _fleet: Any = None) -> Iterator[Any]:
        if method == "JobReader.WatchRun":
            yield RUN
            return
        if not self.broken.is_set():
            yield self.lines(1)
            while not self.source.has_ended():
                Event().wait(0.01)
            self.broken.set()
            raise TobanError(ErrorCode.UNAVAILABLE, "the log-archiver restarts")
        yield self.lines(*range(max(request.after.seq + 1, request.from_seq), 4))
        if request.follow:
            yield logs_pb2.ReadLogResponse(token=5, at_end=True)

    def lines(self, *numbers: int) -> logs_pb2.ReadLogResponse:
        return logs_pb2.ReadLogResponse(
            token=5,
            lines=[logs_pb2.LogLine(seq=number, stream=1, text=f"line {number}".encode()) for number in numbers],
        )


def test_a_read_that_breaks_between_the_end_and_the_seal_loses_no_line(capfd: pytest.CaptureFixture[str]) -> None:
    client = Client()
    assert attend(client.source, 1, show_log=True).state == "SUCCEEDED"
    out, err = capfd.readouterr()
    assert [line.split()[-1] for line in out.splitlines()] == ["1", "2", "3"] and "warning" not in err
